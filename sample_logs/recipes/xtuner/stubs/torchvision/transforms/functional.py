class InterpolationMode:
    BICUBIC = "bicubic"
    BILINEAR = "bilinear"

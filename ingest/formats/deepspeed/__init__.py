"""Logs that DeepSpeed prints itself: its engine, its monitors, DeepSpeed-Chat."""

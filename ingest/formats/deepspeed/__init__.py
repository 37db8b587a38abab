"""Logs printed by DeepSpeed itself: engine, monitors, DeepSpeed-Chat."""

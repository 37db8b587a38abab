"""What each framework prints, as data: one LogFormat a kind of log, in a folder per framework."""

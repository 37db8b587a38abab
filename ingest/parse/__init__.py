"""One line of a log to a step, a fact or an event: the specification, line by line."""

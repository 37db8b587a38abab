"""Report: its data, the HTML page, Markdown, charts as files, redaction."""

"""The same training runs under TraceML and under Kinetoscope."""

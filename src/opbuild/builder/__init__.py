"""The build system: decide, compile in workers, publish, report."""

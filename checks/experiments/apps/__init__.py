"""Experiments as pages with one control a constraint; `kvescrow experiment NAME --app` serves one."""

"""The C library that runs offline models: two source files to compile into a program (``docs/guides/c.md``).

``python -m opbuild.native`` prints the folder that holds them.
"""

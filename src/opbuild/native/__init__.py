"""All that is written in C.

Here, the library that runs offline models: two source files to compile into a program (``docs/guides/c.md``). In
``support``, what networks are linked with, and its objects (``make support``).

``python -m opbuild.native`` prints the folder that holds them.
"""

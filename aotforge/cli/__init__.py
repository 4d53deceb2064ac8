"""The command line: tasks and the programs that run them.

Input: words. Output: results on standard output, messages on standard error, an exit code.
"""

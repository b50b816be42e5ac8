"""The checks of `tidemill doctor`, some of which the console shows too.

Each looks at one thing and says how it is, and what to do if it is not well.
"""

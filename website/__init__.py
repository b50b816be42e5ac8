"""The site of the documentation: what `mkdocs` is told, and the pages and pictures that are made from code.

`python -m website` writes those anew; a test proves that they are what the code says. Nothing here is installed.
"""

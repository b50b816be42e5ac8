"""Mutation testing of the pure cores: `make mutants`.

Each mutant is one small change of one function: a boundary moved, a condition turned round, a number one larger, a
statement left out. Its tests must notice. One that no test notices is a missing test, or the same program in other
words; the latter stand in `equivalent.py`, each with its reason, and the run ends well when these are all that is
left. Not mutated: texts, what is raised and its message, defaults, and what a module does when it is imported.

One core is in the database: the merge rule of the stage queue. The text of its functions is changed, and installed
in the databases of its tests.
"""

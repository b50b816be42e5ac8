"""What earlier releases left behind: their data, and their code; both in the repository, so that no history is needed.

- `first.dump`: the database of the last state at revision 0001, written by its own code and worker. (The very first
  could not enqueue by SQL.)
- `before.dump`: that of the last state at revision 0003, with reactive tasks.
- `before.tar.xz`: the code of that last state. Its workers and producers run in tests, on the schema of today.

`parcels` and `rivers` are a user's modules, which run under each of these releases and under this one. `write` is the
program that puts work in, under the old code. `python -m tests.kit.upgrade.make first <commit>` made the data, and
`git archive <commit> app recovery tidemill triggers celeryconfig.py | xz -9 > before.tar.xz` the archive; the commits
stand at the head of the data. Neither is made anew: there is a new one for a new release.
"""

"""What people who look at reactive tasks are shown: the board of all tasks, the pools, what went on over time, and the
atlas of data sets and tasks. Everything here only reads, by index and within bounds.
"""

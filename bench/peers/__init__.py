"""Scripts of the peers, run by the peers' own interpreter: arguments as JSON in, one line of JSON out.

They import nothing of ours.
"""

"""Tells sellers of the classifieds site what its stages have done with their offers, each thing exactly once (S14).

What it shows: a subscriber to what stages save. An event may come twice, and an old one after a newer one, so it is
handled in one transaction with the note that it was; whatever kills the subscriber, and whenever, no notification is
lost and none is sent twice. That is not taken on trust: the table of notifications has a constraint that a second one
would break, and `notify.proof` looks for sellers that were told nothing.

To run it by yourself, beside `examples/classifieds`:

    cd examples && python -m notify.subscriber
    cd examples && python -m notify.proof --within 30
"""

"""A classifieds site: offers that people write and edit, and six stages that look after them.

What it shows: every kind of stage. One waits 180 days for its timer, one brings offers into the form of a new
catalogue, one adds a predicted price, one sorts photos, one asks again and again whether a video is still there, one
fetches photos through a slow outside service that often fails. Each minds its own business; that they follow from each
other is seen from what they watch. `classifieds.proof` looks whether every offer at rest is as it should be, whoever
has written it: the site's own program, or plain SQL.

`tidemill up --demo` runs it. To run it by yourself, in two terminals:

    cd examples && python -m classifieds.models && TIDEMILL_MODULES=classifieds.stages tidemill up
    cd examples && python -m classifieds.users
"""

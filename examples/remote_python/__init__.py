"""A stage that lives in a service of its own: it rates offers of the classifieds site by gRPC (S18).

What it shows: the five calls of `app/proto/tidemill/v1/stage.proto`, for one entity and for a batch in which one that
cannot be read fails alone; a state that nobody else sees; a timer; side effects in `Saved` only, once for each
sequence; a token, TLS, a health check, and a stop that lets calls end.

It knows nothing of Tidemill but that file, and has no database. `remote_python.score` is what it is about; the rest is
what any such service has. To run it by itself:

    cd examples && python -m remote_python --listen 127.0.0.1:8431 --token-file token

The same in JavaScript is in `examples/remote_node`.
"""

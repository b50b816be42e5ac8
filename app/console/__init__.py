"""The HTTP server of `tidemill console`: the door for programs in other languages, under `/api/v1`, and the pages for
people (`web`, `pages`).

Promises of the API:
- Nothing of a request is read, and nothing is done for it, before its token was looked at. Open is `/healthz` alone.
- What is refused changes nothing. What is answered with 200 is committed.
- A poll that waits holds neither a thread nor a connection, and a task is claimed only for a client that is there.
- An error says what the caller can do, as `{"error": {"code": …, "message": …}}`; details of the inside stay inside.
  The log has the name of a token, never the token.
"""

"""The gRPC server: states of stages and the control table, for programs in any language.

Promises:
- Nothing of a call is read, and nothing is done for it, before its token was looked at. Open is the health service
  alone.
- What is refused changes nothing. What is answered with OK is committed.
- No call lasts longer than its deadline, nor longer than `calls.LONGEST`: its queries end with it. A client that sends
  half a message holds up nobody else.
- A status says what the caller can do; details of the inside stay inside. The log has the name of a token, never the
  token.
"""

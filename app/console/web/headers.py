"""Headers of all pages: what a browser may do with them, and what they may load."""

from __future__ import annotations

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
SECURITY = {
    "Content-Security-Policy": "; ".join(f"{word} {value}" for word, value in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With `no-referrer`, a browser would not say where a form comes from.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
PAGE = SECURITY | {"Cache-Control": "no-store", "Vary": "Cookie"}
#: Their addresses change with what is in them.
STATIC = SECURITY | {"Cache-Control": "public, max-age=31536000, immutable"}

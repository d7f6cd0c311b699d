"""What to do about each problem: shown at /problems/<slug>. A test asks for one for every error."""

from __future__ import annotations

REMEDIES = {
    "malformed-body": "Send JSON in UTF-8 without NaN or Infinity, not nested deeper than the documentation shows.",
    "body-too-large": "Send fewer points a request: `limit` says how many bytes are read. Raw float64 rows are the "
    "shortest. An operator can raise HOROCYCLE_BODY_LIMIT.",
    "unsupported-media-type": "Name what you send in Content-Type: application/json, application/x-ndjson, "
    "application/x-npy or application/octet-stream. No Content-Encoding.",
    "unknown-field": "Leave the field out, or mend its name: the detail lists those there are.",
    "invalid-request": "The detail names the member and what it must be; /docs has every body with an example.",
    "empty-batch": "Send at least one point.",
    "point-outside-ball": "Points live inside the ball: √c‖x‖ < 1, and not further from the origin than `limit`. Was "
    "the embedding made for another curvature, or clipped at its rim? Scale it, or open a session with its curvature.",
    "non-finite": "Look for a division by zero before the point at `index`; leave such points out.",
    "not-a-number": "Coordinates are JSON numbers, in rows of equal length: no strings, no true and false.",
    "dimension-mismatch": "Every point has as many coordinates as the session's `dimension`; another dimension needs "
    "another session.",
    "length-mismatch": "Send one label for each point.",
    "unknown-label": 'Labels are compared exactly: 1, true and "1" are three things. Send one of the session\'s, or '
    "open one that has it.",
    "binary-only": "Give a strategic session two labels, the wanted one last.",
    "invalid-parameter": "The detail says what the parameter may be.",
    "id-reused": "Give every predicted point an id of its own.",
    "invalid-snapshot": "Send what GET /sessions/{id}/snapshot gave, unchanged and whole.",
    "empty-class": "Observe at least one point of every label first, or open a session with fewer labels.",
    "too-many-points": "Fit a sample of them. An operator can raise HOROCYCLE_FIT_POINTS.",
    "not-separable": "Ask for a soft margin: no classifier of this kind has all these points on their sides.",
    "not-converged": "Take a smaller C, or points that are not so near to the rim.",
    "unknown-session": "Look for the id in GET /sessions; it is written exactly as it was given.",
    "session-gone": "It was deleted or expired. Open another one under a new id; a snapshot can be imported there.",
    "session-exists": "Choose another id, or leave it out and get one.",
    "session-replaying": "Wait until its `progress` is 1 and its status live; DELETE cancels a replay.",
    "log-trimmed": "Ask from `first` on. A session that keeps more points is opened or changed with keep_points.",
    "unknown-fit": "Look for it in GET /sessions/{id}/fits; a fit that was deleted is forgotten.",
    "fit-not-ready": "Wait until its status is done: GET /sessions/{id}/fits/{fit}, or the event stream, says so.",
    "fit-failed": "Its `failure` says why. Mend that and fit again.",
    "unknown-route": "/docs lists every path.",
    "method-not-allowed": "The Allow header lists the verbs of this path.",
    "stale-model": "Fetch the model again (its ETag is in this answer), respond to it, and send the points anew. "
    "Nothing was learned from them.",
    "key-reused": "An Idempotency-Key belongs to one body. Take a new key for another one.",
    "earlier-connection": "Another connection of this producer came first. To take over from it, connect with a number "
    "above `newest`, or with none.",
    "rate-limited": "Wait for the seconds in Retry-After and send the same again.",
    "store-unavailable": "Send the same again, with the same Idempotency-Key, after the seconds in Retry-After. If it "
    "lasts, an operator should look at the Redis or Valkey behind the service.",
    "store-full": "An operator has to give the store more memory, or sessions have to end. Predictions still work.",
    "store-read-only": "An operator has to point the service at a primary. Predictions still work.",
    "outcome-unknown": "Send the same again with the same Idempotency-Key: it is applied once, whatever happened.",
    "state-corrupt": "Only this session is concerned. Import a snapshot of it under a new id, and tell the operator.",
    "unauthenticated": "Send Authorization: Bearer and a key of this service. The live page asks for one.",
    "answer-too-large": "Ask for fewer points a request, or leave the columns out with `reply=summary`.",
    "session-quota": "End sessions that are no longer needed, or ask the operator for a larger quota of this key.",
    "unknown-host": "Call the service by a name it knows; an operator adds names to its settings.",
    "cross-site": "A page of another site may not write here. An operator can allow its origin.",
    "scope-missing": "Use a key whose scopes cover this request; the detail names the one that is missing.",
    "internal-error": "Our fault. Send it again with the same Idempotency-Key; tell the operator the X-Request-ID.",
}

// How good an offer is, from 0 to 100, and what that rests on. Pure; the same as remote_python/score.py.

const ON_AIR = "on air";
const WEEK = 7 * 24 * 3600 * 1000;
const PHOTOS_MOST = 4;
const WEEKS_MOST = 20;
// The columns that it looks at.
export const READS = ["status", "published_at", "photos", "price", "predicted_price"];

// What a score is made from: the state of the stage. `offer` is a row as Postgres writes it, `now` in milliseconds.
// null: it is not on air, and has no score.
export function rate(offer, now) {
  if (offer.status !== ON_AIR) return null;
  const weeks = offer.published_at === null ? 0 : Math.max(0, Math.floor((now - Date.parse(offer.published_at)) / WEEK));
  return {
    photos: Math.min(PHOTOS_MOST, offer.photos.filter((each) => "stored" in each).length),
    fair: offer.predicted_price !== null && offer.price <= offer.predicted_price,
    weeks: Math.min(WEEKS_MOST, weeks),
  };
}

export function same(one, other) {
  if (one === null || other === null) return one === other;
  return one.photos === other.photos && one.fair === other.fair && one.weeks === other.weeks;
}

export function quality(rated) {
  return rated === null ? null : 40 + 10 * rated.photos + (rated.fair ? 20 : 0) - 2 * rated.weeks;
}

// When it is less, if nobody changes the offer, in milliseconds; null: never.
export function until(rated, offer) {
  if (offer.published_at === null || rated.weeks >= WEEKS_MOST) return null;
  return Date.parse(offer.published_at) + (rated.weeks + 1) * WEEK;
}

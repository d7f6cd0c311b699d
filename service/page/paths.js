/* Curves of the disk as paths of a canvas. `screen` has at(x), where a point is in pixels, and the disk's radius. */

const STRAIGHT = 4000; // disks

/** A line, or an arc that leaves one by less than a tenth of a pixel: [unit normal, offset along it] */
function straight(found) {
  if (found.shape === "line") {
    const size = Math.hypot(...found.normal);
    return [found.normal.map((each) => each / size), -found.offset / size];
  }
  if (found.radius < STRAIGHT) return null;
  const away = Math.hypot(...found.centre);
  return [found.centre.map((each) => each / away), away - found.radius];
}

const circle = (path, found, screen) => path.arc(...screen.at(found.centre), found.radius * screen.radius, 0, 2 * Math.PI);

/** The point of a line so far along it, and so far beyond it */
const beside = ([n, off], along, out) => [(off + out) * n[0] - along * n[1], (off + out) * n[1] + along * n[0]];

/** All of a curve */
export function whole(path, found, screen) {
  const line = straight(found);
  if (!line) return circle(path, found, screen);
  path.moveTo(...screen.at(beside(line, 3, 0)));
  path.lineTo(...screen.at(beside(line, -3, 0)));
}

/** What a circle encloses; of a line the half plane that its normal points to */
export function outline(path, found, screen) {
  const line = straight(found);
  if (!line) return circle(path, found, screen);
  path.moveTo(...screen.at(beside(line, -3, 0)));
  for (const [along, out] of [[3, 0], [3, 3], [-3, 3]]) path.lineTo(...screen.at(beside(line, along, out)));
  path.closePath();
}

/** Along a geodesic's curve from one of its ideal points to the other, within the disk */
export function follow(path, found, from, to, screen) {
  if (straight(found)) return path.lineTo(...screen.at(to));
  const [x, y] = screen.at(found.centre), [a, b] = [from, to].map((each) => screen.at(each));
  const begin = Math.atan2(a[1] - y, a[0] - x);
  let turn = Math.atan2(b[1] - y, b[0] - x) - begin;
  turn -= 2 * Math.PI * Math.round(turn / (2 * Math.PI)); // the short way: geodesics turn by less than π
  path.arc(x, y, found.radius * screen.radius, begin, begin + turn, turn < 0);
}

/* Requests that are wanted often and made seldom. */

import { Problem } from "./api.js";

let underway = 0;
export const quiet = () => underway === 0;

/** Calls `work` soon, never twice at once, at least `pause` milliseconds after it ended; again if it was wanted meanwhile.
    What a request fails with is left out: the event stream says that the service is lost. */
export function throttled(work, pause) {
  let busy = false, wanted = false;
  return async () => {
    wanted = true;
    if (busy) return;
    busy = true;
    underway++;
    while (wanted) {
      wanted = false;
      try {
        await work();
      } catch (error) {
        if (!(error instanceof Problem || error instanceof TypeError)) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
    busy = false;
    underway--;
  };
}

// uPlot is a classic script: the page finds it in `window`.
import type UPlot from "uplot";

declare global {
  interface Window {
    uPlot: typeof UPlot;
  }
}

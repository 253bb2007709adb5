// Plays the recorded session on docs/session.md. `RECORDING` is docs/session.cast: the build writes it as a script (tools/docs_hooks.py), because a
// page that is opened from a disk must not fetch files.
AsciinemaPlayer.create({ data: RECORDING }, document.getElementById("session"), {
  poster: "npt:0:40",
  terminalFontFamily: "ui-monospace, Menlo, Consolas, monospace",
});

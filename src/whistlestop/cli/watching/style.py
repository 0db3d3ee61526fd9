"""Colours and layout of the page: one accent, hairlines, and statuses that also differ in shape."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a chart in plain output needs colours, and no Textual
    from textual.theme import Theme


@dataclass(frozen=True)
class Palette:
    dark: bool
    paper: str
    raised: str  # dialogs, the bar of keys
    line: str
    ink: str
    faint: str
    accent: str
    band: str  # between the lowest and the highest value
    good: str
    warn: str
    bad: str
    info: str

    def of(self, colour: str) -> str:
        """The colour for one of those in words.SYMBOLS."""
        names = {"green": self.good, "yellow": self.warn, "red": self.bad, "cyan": self.info, "dim": self.faint}
        return names.get(colour, self.ink)

    def theme(self) -> "Theme":
        from textual.theme import Theme

        return Theme(
            name=name_of(dark=self.dark),
            dark=self.dark,
            primary=self.accent,
            accent=self.accent,
            foreground=self.ink,
            background=self.paper,
            surface=self.paper,
            panel=self.raised,
            success=self.good,
            warning=self.warn,
            error=self.bad,
            variables={
                "border": self.accent,
                "border-blurred": self.line,
                "scrollbar": self.line,
                "scrollbar-background": self.paper,
                "scrollbar-corner-color": self.paper,
                "scrollbar-background-hover": self.paper,
                "scrollbar-background-active": self.paper,
                "footer-background": self.raised,
                "footer-foreground": self.faint,
                "footer-description-foreground": self.faint,
                "footer-key-foreground": self.accent,
            },
        )


DARK = Palette(
    dark=True,
    paper="#10151a",
    raised="#1a2129",
    line="#2f3a45",
    ink="#dfe6ec",
    faint="#8896a3",
    accent="#6cb2ff",
    band="#2c4a6b",
    good="#5fce8c",
    warn="#f0b95a",
    bad="#ff7b7b",
    info="#63d0dd",
)
LIGHT = Palette(
    dark=False,
    paper="#fbfcfd",
    raised="#eef1f4",
    line="#cfd6dd",
    ink="#1b232b",
    faint="#5b6772",
    accent="#1259b5",
    band="#bcd3ee",
    good="#14733d",
    warn="#8a5300",
    bad="#b3261e",
    info="#0b6a78",
)


def name_of(*, dark: bool) -> str:
    return "whistle-dark" if dark else "whistle-light"


def looks_dark(environ: Mapping[str, str] | None = None) -> bool:
    """By COLORFGBG where the terminal sets it (`15;0`: white on black); most that do not are dark."""
    background = (environ or os.environ).get("COLORFGBG", "").rpartition(";")[2]
    return background not in ("7", "15")


CSS = """
Screen { background: $background; color: $foreground; layout: vertical; }
#header { height: auto; padding: 0 1; }
#banner { height: auto; padding: 0 1; background: $panel; color: $foreground; text-style: bold; display: none; }
#banner.lost { background: $warning; color: $background; }
#banner.shown { display: block; }
.pane { border: round $border-blurred; border-title-color: $text-muted; border-subtitle-color: $text-muted;
       background: $background; padding: 0 1; }
.pane:focus { border: round $border; border-title-color: $border; border-title-style: bold; }
#phases { height: auto; max-height: 45%; }
#charts { height: 3fr; min-height: 6; }
#below { height: 2fr; min-height: 5; max-height: 50%; }
#log { width: 3fr; }
#events { width: 2fr; }
LinePane { scrollbar-size: 0 1; scrollbar-color: $scrollbar; }
#search { display: none; height: 1; border: none; padding: 0 1; background: $panel; }
Footer { background: $panel; }

Screen.compact .pane { display: none; }
Screen.compact #phases { display: block; max-height: 40%; }
Screen.compact #below { display: none; }
Screen.compact.on-charts #charts { display: block; }
Screen.compact.on-log #below, Screen.compact.on-events #below { display: block; height: 1fr; max-height: 100%; }
Screen.compact.on-log #log { display: block; width: 1fr; }
Screen.compact.on-events #events { display: block; width: 1fr; }
Screen.short #phases { border: none; padding: 0 2; max-height: 35%; }

Dialog { align: center middle; background: $background 60%; }
Dialog > VerticalScroll { width: 76; max-width: 96%; height: auto; max-height: 94%; background: $panel;
                border: round $border; padding: 1 2; }
Dialog.danger > VerticalScroll { border: round $error; }
Dialog Static { height: auto; background: $panel; }
Dialog .keys { color: $text-muted; margin-top: 1; }
Dialog Input { margin-top: 1; border: round $border-blurred; background: $background; }
Dialog Input:focus { border: round $border; }
Dialog .buttons { height: auto; margin-top: 1; align-horizontal: right; background: $panel; }
Dialog Button { margin-left: 2; min-width: 12; }
Dialog OptionList { height: auto; max-height: 24; border: none; background: $panel; margin-top: 1; }
"""

//! Colours, or none when the player set NO_COLOR.

use ratatui::style::{Color, Modifier, Style};

/// How things look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    colour: bool,
}

impl Theme {
    /// With or without colours.
    pub(crate) const fn new(colour: bool) -> Self {
        Self { colour }
    }

    /// As the environment wants it: a non-empty NO_COLOR turns colours off.
    pub(crate) fn from_env() -> Self {
        Self::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }

    fn tint(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// What a person should find first.
    pub(crate) fn strong(self) -> Style {
        self.tint(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// What may stand back.
    pub(crate) fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// What is chosen.
    pub(crate) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// All is well.
    pub(crate) fn good(self) -> Style {
        self.tint(Color::Green)
    }

    /// Bearable.
    pub(crate) fn fair(self) -> Style {
        self.tint(Color::Yellow)
    }

    /// Bad.
    pub(crate) fn bad(self) -> Style {
        self.tint(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// A picture for a camera: light on dark whatever the terminal's own colours are.
    pub(crate) fn picture(self) -> Style {
        if self.colour { Style::new().fg(Color::White).bg(Color::Black) } else { Style::new() }
    }
}

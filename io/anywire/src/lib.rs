//! Write the game once, play it over any wire

//! Seeds that once failed. Every run plays them first.

/// A seed, and what it showed.
pub const REGRESSIONS: &[(u64, &str)] = &[
    (6, "two joiners moved at once, and each sent to the other's old address for 30 s"),
    (16, "an old-style joiner answered to its twin's name after its welcome was lost"),
    (34, "the same two causes through a relay"),
    (41, "an old-style joiner guessed its name after 10 s of lost welcomes"),
    (146, "names of twins changed places in the middle of the session"),
    (197, "a link whose six questions for its name were lost stayed shunned while frames came on it"),
    (512, "three lost joins in a row kept a player out of the lobby"),
    (1158, "a nameless link was not asked again while frames came on it"),
    (1866, "a profile with a new time in it each second made everybody dial everybody anew"),
];

//! The code as a picture: two modules a character cell.

use qrcode::{Color, EcLevel, QrCode};

/// Modules of light margin, tried from the widest to the narrowest that phones still read.
const MARGINS: [usize; 3] = [4, 2, 1];

/// Rows of half blocks, light on dark, that fit into `columns` x `rows`; `None` when no margin makes it fit.
#[must_use]
pub(crate) fn picture(code: &str, columns: usize, rows: usize) -> Option<Vec<String>> {
    let code = QrCode::with_error_correction_level(code.as_bytes(), EcLevel::L).ok()?;
    let side = code.width();
    let margin = MARGINS.into_iter().find(|m| side + 2 * m <= columns && (side + 2 * m).div_ceil(2) <= rows)?;
    let total = side + 2 * margin;
    let light = |x: usize, y: usize| {
        let (Some(x), Some(y)) = (x.checked_sub(margin), y.checked_sub(margin)) else { return true };
        x >= side || y >= side || code[(x, y)] == Color::Light
    };
    let row = |y: usize| {
        let cell = |x: usize| match (light(x, y), y + 1 >= total || light(x, y + 1)) {
            (true, true) => '\u{2588}',
            (true, false) => '\u{2580}',
            (false, true) => '\u{2584}',
            (false, false) => ' ',
        };
        (0..total).map(cell).collect()
    };
    Some((0..total).step_by(2).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "TFVLCO4AYCUACFDTD7DDGZCNOMPQAAICAMCAKBQHBAEQUCY";

    #[test]
    fn a_code_fits_an_ordinary_terminal_with_a_margin() {
        let rows = picture(CODE, 80, 22).unwrap();
        assert!(rows.len() <= 22);
        let width = rows[0].chars().count();
        assert!(rows.iter().all(|row| row.chars().count() == width));
        assert!(rows[0].chars().all(|c| c == '\u{2588}'), "the margin is light");
        assert!(rows.iter().any(|row| row.contains(' ')), "there are dark modules");
    }

    #[test]
    fn the_finder_patterns_are_in_three_corners() {
        let rows: Vec<Vec<char>> = picture(CODE, 200, 100).unwrap().iter().map(|r| r.chars().collect()).collect();
        let last = rows[0].len() - 5;
        // Module (4, 4) of the picture is the dark corner of a finder, at the top left and at the top right.
        assert_eq!((rows[2][4], rows[2][last]), (' ', ' '), "two dark modules above one another");
        assert_eq!((rows[2][3], rows[2][last + 1]), ('\u{2588}', '\u{2588}'), "light beside them");
    }

    #[test]
    fn what_does_not_fit_is_not_drawn() {
        assert_eq!(picture(CODE, 20, 24), None);
        assert_eq!(picture(CODE, 80, 10), None);
    }
}

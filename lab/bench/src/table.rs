//! Tables in Markdown.

use std::fmt::Display;

/// A Markdown table: text columns to the left, numbers to the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. A name that begins with `>` is right-aligned.
    #[must_use]
    pub fn new(columns: &[&str]) -> Self {
        Self { head: columns.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row; cells beyond the columns are cut off.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.rows.push(cells.iter().take(self.head.len()).map(ToString::to_string).collect());
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.head.iter().map(|name| name.trim_start_matches('>')).collect();
        let widths: Vec<usize> = names
            .iter()
            .enumerate()
            .map(|(column, name)| {
                let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
                cells.chain([name.chars().count(), 3]).max().unwrap_or_default()
            })
            .collect();
        write!(f, "|")?;
        for ((name, width), column) in names.iter().zip(&widths).zip(&self.head) {
            if column.starts_with('>') { write!(f, " {name:>width$} |")? } else { write!(f, " {name:width$} |")? }
        }
        write!(f, "\n|")?;
        for (name, width) in self.head.iter().zip(&widths) {
            let right = name.starts_with('>');
            write!(f, " {}{} |", "-".repeat(width - usize::from(right)), if right { ":" } else { "" })?;
        }
        for row in &self.rows {
            write!(f, "\n|")?;
            for ((cell, width), name) in row.iter().zip(&widths).zip(&self.head) {
                if name.starts_with('>') { write!(f, " {cell:>width$} |")? } else { write!(f, " {cell:width$} |")? }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up() {
        let mut table = Table::new(&["who", ">ns"]);
        table.row(&[&"ours", &7]);
        table.row(&[&"theirs, slower", &1234]);
        let want = "| who            |   ns |\n| -------------- | ---: |\n| ours           |    7 |\n| theirs, slower | 1234 |";
        assert_eq!(table.to_string(), want);
    }
}

//! Columns for people: as wide as their longest cell, two blanks apart, nothing behind the last.

use crate::output::out;

/// Writes rows under a head; a `-` stands for what is not there.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    out!("{}", joined(head, widths));
    for row in rows {
        out!("{}", joined(std::array::from_fn(|column| if row[column].is_empty() { "-" } else { row[column].as_str() }), widths));
    }
}

fn joined<const N: usize>(cells: [&str; N], widths: [usize; N]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        line.push_str(&format!("{cell:width$}  "));
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_and_lines_end_with_their_text() {
        assert_eq!(joined(["ä", "b", "c"], [3, 1, 5]), "ä    b  c");
    }
}

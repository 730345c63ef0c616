//! `anywire list`: the games that are open to everybody.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use rendezvous::words::{Row, read_error, read_list};
use seam::{HttpMethod, Reply, Request};
use serde_json::{Value, json};

use crate::args::ListArgs;
use crate::log::Log;
use crate::run::{FAILED, FINE, WRONG};
use crate::text;

/// How long a master may take, and how much it may say: 10,000 rows of the longest kind.
const TIMEOUT: Duration = Duration::from_secs(6);
const ANSWER_MAX: usize = 8 << 20;

/// Columns of names on anything but a terminal.
const NAME: usize = 40;

/// Prints the list. The answer is the exit code.
pub(crate) fn run(args: &ListArgs) -> u8 {
    let url = match args.url() {
        Ok(url) => url,
        Err(error) => return complain(&error.to_string(), WRONG),
    };
    match rows(&url) {
        Ok(rows) => print(&if args.json { lines(&rows) } else { table(&rows) }),
        Err(why) => complain(&why, FAILED),
    }
}

/// Prints the list as one JSON object with the rows of the master in `servers`, which is what a game of the original
/// reads from its helper.
pub(crate) fn original(url: &str) -> u8 {
    let url = match crate::args::url("--print-public-list", url) {
        Ok(url) => url,
        Err(error) => return complain(&error.to_string(), WRONG),
    };
    match rows(&url) {
        Ok(rows) => print(&format!("{}\n", json!({ "servers": rows.iter().map(value).collect::<Vec<_>>() }))),
        Err(why) => complain(&why, FAILED),
    }
}

fn complain(why: &str, code: u8) -> u8 {
    Log::from_env().line(&format!("anywire: {why}"));
    code
}

/// A reader that went away early is no failure.
fn print(text: &str) -> u8 {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => complain(&format!("cannot print: {error}"), FAILED),
        Ok(()) | Err(_) => FINE,
    }
}

/// The rows at a master, the newest first.
fn rows(url: &str) -> Result<Vec<Row>, String> {
    let request = Request::Http {
        method: HttpMethod::Get,
        url: format!("{url}/list"),
        body: Vec::new(),
        timeout: TIMEOUT,
        answer_max: ANSWER_MAX,
    };
    match driver::fetch(&request) {
        Some(Reply::Http { status: 200, body }) => {
            read_list(&body).map_err(|_| format!("what {url} answers is no list of games: is it a master server?"))
        }
        Some(Reply::Http { status, body }) => Err(format!("{url} answers {status} {}", read_error(&body))),
        Some(Reply::Unreachable(why)) => Err(format!("cannot reach {url}: {why}")),
        Some(_) | None => Err("no HTTP in this build".to_owned()),
    }
}

/// A row with the keys of the wire.
fn value(Row { game, age }: &Row) -> Value {
    json!({
        "name": game.name,
        "code": game.code,
        "players": game.players,
        "max": game.max,
        "game": game.kind.label(),
        "type": game.kind.word(),
        "version": game.version,
        "locked": game.locked,
        "age": age,
    })
}

fn lines(rows: &[Row]) -> String {
    rows.iter().map(|row| format!("{}\n", value(row))).collect()
}

/// Two lines a game, so that no code is ever cut: a code that is cut is of no use.
fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no games are listed\n".to_owned();
    }
    let widest = rows.iter().map(|row| text::width(&text::fit(&row.game.name, NAME))).max().unwrap_or(0).max(4);
    let mut out = format!("{:widest$}  {:>9}  {:16}  {:8}  {}\n", "GAME", "PLAYERS", "KIND", "VERSION", "PASSWORD");
    for Row { game, .. } in rows {
        let name = text::fit(&game.name, NAME);
        let pad = " ".repeat(widest.saturating_sub(text::width(&name)));
        let players = format!("{}/{}", game.players, game.max);
        let version = text::fit(&game.version, 20);
        let locked = if game.locked { "yes" } else { "no" };
        out += &format!("{name}{pad}  {players:>9}  {:16}  {version:8}  {locked}\n", game.kind.label());
        out += &if pasteable(&game.code) {
            format!("  anywire join {}\n", game.code)
        } else {
            "  cannot be joined: its code holds characters that no code has\n".to_owned()
        };
    }
    if io::stdout().is_terminal() {
        out += "\nCopy the line under a game to join it.\n";
    }
    out
}

/// Whether a code is fit to stand in a line that people paste into a shell. Anybody can list a game, under any code:
/// one such as `A; rm x` must not become part of a command. Codes are letters and digits, `=` at most at the end; the
/// address of a Steam profile has full stops, colons and slashes as well.
fn pasteable(code: &str) -> bool {
    !code.is_empty() && code.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '=' | '.' | ':' | '/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rendezvous::words::{Game, GameType};

    fn row(name: &str, code: &str, locked: bool) -> Row {
        let game = Game {
            name: name.into(),
            code: code.into(),
            players: 2,
            max: 200,
            kind: GameType::Host,
            version: "0.7.1.4".into(),
            locked,
        };
        Row { game, age: 3 }
    }

    #[test]
    fn a_table_keeps_codes_whole_and_names_in_their_column() {
        let long = "A".repeat(400);
        let shown = table(&[row("Tuesday", &long, false), row("\u{65e5}\u{672c}\u{1b}[2J", "BBBB", true)]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[1], "Tuesday       2/200  player hosted     0.7.1.4   no");
        assert_eq!(lines[2], format!("  anywire join {long}"));
        assert_eq!(lines[3], "\u{65e5}\u{672c}\u{b7}[2J      2/200  player hosted     0.7.1.4   yes");
        assert_eq!(table(&[]), "no games are listed\n");
    }

    #[test]
    fn a_listed_code_never_puts_a_command_into_the_line_that_people_paste() {
        for code in ["AAAA; rm -rf ~", "AAAA\nreboot", "$(id)", "`id`", "A&B", "A|B", "--help", "A'B", "", "\u{1b}[2J"]
        {
            let shown = table(&[row("trap", code, false)]);
            assert!(!shown.contains("anywire join"), "{shown}");
            assert!(shown.ends_with("\n  cannot be joined: its code holds characters that no code has\n"), "{shown}");
        }
        for code in ["ABVLCO4A", "ABVLCO4AAA======", "https://steamcommunity.com/profiles/76561198012345678"] {
            assert!(table(&[row("fair", code, false)]).ends_with(&format!("\n  anywire join {code}\n")));
        }
    }

    #[test]
    fn json_is_one_row_a_line_with_the_keys_of_the_wire() {
        let text = lines(&[row("a", "AAAA", false), row("b", "BBBB", true)]);
        let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((all.len(), &all[1]["code"], &all[1]["locked"]), (2, &json!("BBBB"), &json!(true)));
        let keys: Vec<&String> = all[0].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["name", "code", "players", "max", "game", "type", "version", "locked", "age"]);
    }
}

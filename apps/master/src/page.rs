//! The game list as a page for people. It reads without scripts; the one there is copies a code.

use std::fmt::Write;

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use rendezvous::words::{GameType, Row};

/// Most rows on one page; filters reach the rest.
const ROWS_MAX: usize = 1000;

const STYLE: &str = "
:root{color-scheme:light dark;--fg:#1c2024;--bg:#fbfbf9;--dim:#5f6870;--line:#dcdcd6;--soft:#f1f1ec;--mark:#0b6e4f}
@media(prefers-color-scheme:dark){:root{--fg:#e6e6e1;--bg:#15181a;--dim:#9aa3aa;--line:#31373b;--soft:#1d2124;--mark:#5cc8a0}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:68rem;padding:2rem 1rem 4rem;font:16px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg)}
h1{font-size:1.5rem;margin:0}p{margin:.25rem 0 1.25rem;color:var(--dim)}
form{display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:end;margin-bottom:1.25rem}
label{display:flex;flex-direction:column;font-size:.8rem;color:var(--dim)}
label.tick{flex-direction:row;gap:.4rem;align-items:center;padding:.45rem 0;font-size:.9rem}
input,select,button{font:inherit;color:inherit;background:var(--soft);border:1px solid var(--line);border-radius:.35rem;padding:.35rem .6rem}
button{cursor:pointer}button:hover{border-color:var(--mark)}
table{width:100%;border-collapse:collapse}th{text-align:left;font-size:.8rem;font-weight:600;color:var(--dim)}
th,td{padding:.5rem .75rem .5rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.name{font-weight:600;overflow-wrap:anywhere}small{display:block;font-weight:400;color:var(--dim)}
code{font:.85rem/1.4 ui-monospace,monospace;overflow-wrap:anywhere;user-select:all}
td.code{min-width:12rem}td.copy{width:1%}
.none{padding:2rem 0;color:var(--dim)}
@media(max-width:44rem){thead{display:none}tr{display:grid;grid-template-columns:1fr auto;border-bottom:1px solid var(--line);padding:.5rem 0}
td{border:0;padding:.15rem .5rem .15rem 0}td.code{grid-column:1}td.copy{width:auto}}
";

/// Shown only where it can work, so that nobody presses a button that does nothing.
const SCRIPT: &str = "
if(navigator.clipboard)for(const b of document.querySelectorAll('button[data-copy]')){b.hidden=false;b.onclick=async()=>{
try{await navigator.clipboard.writeText(b.closest('tr').querySelector('code').textContent);b.textContent='Copied'}
catch{b.textContent='Select it by hand'}setTimeout(()=>b.textContent='Copy',1500)}}
";

/// What the query string asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Filter {
    words: String,
    kind: Option<GameType>,
    version: String,
    unlocked: bool,
    room: bool,
}

impl Filter {
    fn read(query: &str) -> Self {
        let mut filter = Self::default();
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = unescape(value);
            match key {
                "q" => filter.words = value.trim().chars().take(40).collect(),
                "version" => filter.version = value.trim().chars().take(20).collect(),
                "type" => {
                    let kinds = [GameType::Host, GameType::Dedicated, GameType::Relay];
                    filter.kind = kinds.into_iter().find(|kind| kind.word() == value);
                }
                "unlocked" => filter.unlocked = value == "1",
                "room" => filter.room = value == "1",
                _ => {}
            }
        }
        filter
    }

    fn wants(&self, Row { game, .. }: &Row) -> bool {
        let words = self.words.to_lowercase();
        (words.is_empty() || game.name.to_lowercase().contains(&words))
            && (self.version.is_empty() || game.version == self.version)
            && self.kind.is_none_or(|kind| kind == game.kind)
            && !(self.unlocked && game.locked)
            && !(self.room && game.players >= game.max)
    }
}

/// The page as an answer. Its policy lets nothing in but its own style and script.
pub(crate) fn response(rows: &[Row], query: &str) -> Response {
    let mut nonce = [0; 16];
    // Without random numbers the page goes without its script.
    let nonce = getrandom::fill(&mut nonce).ok().map(|()| codec::hex(&nonce));
    let script = nonce.as_ref().map_or("'none'".to_owned(), |nonce| format!("'nonce-{nonce}'"));
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src {script}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (REFERRER_POLICY, "no-referrer".to_owned()),
    ];
    (headers, write(rows, &Filter::read(query), nonce.as_deref())).into_response()
}

fn write(rows: &[Row], filter: &Filter, nonce: Option<&str>) -> String {
    let shown: Vec<&Row> = rows.iter().filter(|row| filter.wants(row)).collect();
    let players: u64 = rows.iter().map(|row| u64::from(row.game.players)).sum();
    let mut out = String::with_capacity(8192 + shown.len() * 512);
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Public games</title><style>{STYLE}</style></head><body><h1>Public games</h1><p>{} with {}. \
         Copy a game's code and paste it where your game asks for it.</p>",
        counted(rows.len(), "game"),
        counted(players, "player"),
    );
    form(&mut out, rows, filter);
    if shown.is_empty() {
        let why = if rows.is_empty() { "No public game right now." } else { "No game matches." };
        let _ = write!(out, "<div class=\"none\">{why}</div>");
    } else {
        out.push_str(
            "<table><thead><tr><th>Game</th><th class=\"n\">Players</th><th>Version</th><th>Code</th><th></th></tr></thead><tbody>",
        );
        for row in shown.iter().take(ROWS_MAX) {
            line(&mut out, row);
        }
        out.push_str("</tbody></table>");
        if shown.len() > ROWS_MAX {
            let _ = write!(out, "<p>{} more; narrow the search.</p>", shown.len() - ROWS_MAX);
        }
    }
    if let Some(nonce) = nonce {
        let _ = write!(out, "<script nonce=\"{nonce}\">{SCRIPT}</script>");
    }
    out.push_str("</body></html>");
    out
}

fn form(out: &mut String, rows: &[Row], filter: &Filter) {
    let _ = write!(
        out,
        "<form method=\"get\"><label>Name<input name=\"q\" maxlength=\"40\" value=\"{}\"></label><label>Kind<select name=\"type\"><option value=\"\">any</option>",
        escape(&filter.words)
    );
    for (kind, text) in [
        (GameType::Host, "player hosted"),
        (GameType::Dedicated, "dedicated game"),
        (GameType::Relay, "dedicated relay"),
    ] {
        let selected = if filter.kind == Some(kind) { " selected" } else { "" };
        let _ = write!(out, "<option value=\"{}\"{selected}>{text}</option>", kind.word());
    }
    out.push_str("</select></label><label>Version<select name=\"version\"><option value=\"\">any</option>");
    let mut versions: Vec<&str> = rows.iter().map(|row| row.game.version.as_str()).filter(|v| !v.is_empty()).collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.dedup();
    for version in versions.iter().take(50) {
        let selected = if *version == filter.version { " selected" } else { "" };
        let version = escape(version);
        let _ = write!(out, "<option value=\"{version}\"{selected}>{version}</option>");
    }
    let ticked = |yes: bool| if yes { " checked" } else { "" };
    let _ = write!(
        out,
        "</select></label><label class=\"tick\"><input type=\"checkbox\" name=\"unlocked\" value=\"1\"{}>no password</label>\
         <label class=\"tick\"><input type=\"checkbox\" name=\"room\" value=\"1\"{}>room left</label><button>Show</button></form>",
        ticked(filter.unlocked),
        ticked(filter.room)
    );
}

fn line(out: &mut String, Row { game, age }: &Row) {
    let locked = if game.locked { ", password" } else { "" };
    let _ = write!(
        out,
        "<tr><td class=\"name\">{}<small>{}{locked}</small></td><td class=\"n\">{} / {}<small>{age} s ago</small></td><td>{}</td>\
         <td class=\"code\"><code>{}</code></td><td class=\"copy\"><button type=\"button\" data-copy hidden>Copy</button></td></tr>",
        escape(&game.name),
        game.kind.label(),
        game.players,
        game.max,
        escape(&game.version),
        escape(&game.code),
    );
}

fn counted(n: impl TryInto<u64>, what: &str) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Text that stays text, in elements and in attributes. Marks that turn the direction of what follows go.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => {}
            c => out.push(c),
        }
    }
    out
}

/// A form's value: `+` is a space, `%41` a byte.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let two = more.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        let hex = two.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        rest = match (*first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                more.get(2..).unwrap_or_default()
            }
            (b'+', _) => {
                bytes.push(b' ');
                more
            }
            (byte, _) => {
                bytes.push(byte);
                more
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rendezvous::words::Game;

    fn row(name: &str) -> Row {
        let game = Game { name: name.to_owned(), code: "AAAA".to_owned(), players: 1, max: 4, ..Game::default() };
        Row { game, age: 3 }
    }

    #[test]
    fn hostile_texts_stay_texts() {
        let hostile = "<script>alert(1)</script>\"'&\u{202E}";
        let mut bad = row(hostile);
        bad.game.code = hostile.to_owned();
        bad.game.version = hostile.to_owned();
        let filter = Filter { words: hostile.to_owned(), version: hostile.to_owned(), ..Filter::default() };
        for page in [write(&[bad.clone()], &Filter::default(), None), write(&[bad], &filter, None)] {
            assert!(!page.contains("<script") && !page.contains("alert(1)</") && !page.contains('\u{202E}'));
            assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"));
        }
    }

    #[test]
    fn the_query_filters_and_is_shown_again() {
        let mut full = row("Full House");
        full.game.players = 4;
        let mut locked = row("secret garden");
        locked.game.locked = true;
        locked.game.kind = GameType::Relay;
        let rows = [row("Open \u{e4}nd green"), full, locked];
        let names = |query: &str| {
            let filter = Filter::read(query);
            rows.iter().filter(|row| filter.wants(row)).map(|row| row.game.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names("").len(), 3);
        assert_eq!(names("q=%C3%84ND+gr"), ["Open \u{e4}nd green"]);
        assert_eq!(names("room=1&unlocked=1"), ["Open \u{e4}nd green"]);
        assert_eq!(names("type=relay"), ["secret garden"]);
        assert_eq!(names("type=nonsense&x=y&=&%").len(), 3);
        assert_eq!(names("version=2"), Vec::<&str>::new());
        let page = write(&rows, &Filter::read("q=a%22b&room=1"), Some("n"));
        assert!(page.contains("value=\"a&quot;b\"") && page.contains("name=\"room\" value=\"1\" checked"));
        assert!(page.contains("No game matches.") && page.contains("3 games with 6 players"));
    }

    #[test]
    fn broken_escapes_are_texts() {
        for (text, want) in
            [("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("%41+", "A "), ("%ff", "\u{fffd}"), ("%+1", "% 1")]
        {
            assert_eq!(unescape(text), want);
        }
    }

    #[test]
    fn an_empty_list_says_so() {
        assert!(write(&[], &Filter::default(), None).contains("No public game right now."));
    }
}

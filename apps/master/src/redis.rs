//! Rows and notes in Redis or Valkey, so that several masters behind one name answer alike.
//!
//! ```text
//! aw:rows   hash        id -> row as JSON            aw:seen  sorted set  id -> time of its last announce
//! aw:from   hash        id -> network                aw:tags  sorted set  tag -> time of its last note
//! aw:k:TAG  list        notes as JSON, oldest first  aw:t     text        time of the last note of all
//! aw:knock  channel     tags that got a note
//! ```
//!
//! Every change is one script, so two masters never see half of it. Times are the database's, so their clocks need
//! not agree. Rates, relay sessions and held polls stay with each master.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisError, Script};
use rendezvous::Limits;
use rendezvous::store::{Op, Outcome};
use rendezvous::words::{Announce, Note, Row, Tag};

use crate::store::Store;
use crate::waiters::Waiters;

/// How long one question may take before the answer is 503.
const PATIENCE: Duration = Duration::from_secs(2);

/// Redis counts a row out of the list on reading, and removes it on the next announce.
const ANNOUNCE: &str = r"
local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000
for _, id in ipairs(redis.call('ZRANGEBYSCORE', 'aw:seen', '-inf', now - ARGV[4])) do
  redis.call('ZREM', 'aw:seen', id); redis.call('HDEL', 'aw:rows', id); redis.call('HDEL', 'aw:from', id)
end
local old = redis.call('HGET', 'aw:rows', ARGV[1])
if not old and redis.call('ZCARD', 'aw:seen') >= tonumber(ARGV[5]) then
  local from, count, most, largest = redis.call('HGETALL', 'aw:from'), {}, 0, nil
  for i = 2, #from, 2 do
    local n = (count[from[i]] or 0) + 1
    count[from[i]] = n
    if n > most then most, largest = n, from[i] end
  end
  if most < (count[ARGV[3]] or 0) + 2 then return 'full' end
  for _, id in ipairs(redis.call('ZRANGE', 'aw:seen', 0, -1)) do
    if redis.call('HGET', 'aw:from', id) == largest then
      redis.call('ZREM', 'aw:seen', id); redis.call('HDEL', 'aw:rows', id); redis.call('HDEL', 'aw:from', id)
      break
    end
  end
end
redis.call('ZADD', 'aw:seen', string.format('%.6f', now), ARGV[1])
redis.call('HSET', 'aw:rows', ARGV[1], ARGV[2])
redis.call('HSET', 'aw:from', ARGV[1], ARGV[3])
for _, key in ipairs({'aw:seen', 'aw:rows', 'aw:from'}) do redis.call('EXPIRE', key, 2 * ARGV[4]) end
if old == ARGV[2] then return 'same' else return 'changed' end
";

const LIST: &str = r"
local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000
local out = {}
local seen = redis.call('ZREVRANGEBYSCORE', 'aw:seen', '+inf', string.format('(%.6f', now - ARGV[1]), 'WITHSCORES')
for i = 1, #seen, 2 do
  local row = redis.call('HGET', 'aw:rows', seen[i])
  if row then out[#out + 1] = tostring(math.floor(now - seen[i + 1])); out[#out + 1] = row end
end
return out
";

const LEAVE: &str = r"
redis.call('ZREM', 'aw:seen', ARGV[1]); redis.call('HDEL', 'aw:from', ARGV[1])
return redis.call('HDEL', 'aw:rows', ARGV[1])
";

const KNOCK: &str = r"
local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000
redis.call('ZREMRANGEBYSCORE', 'aw:tags', '-inf', now - ARGV[3])
if not redis.call('ZSCORE', 'aw:tags', ARGV[1]) and redis.call('ZCARD', 'aw:tags') >= tonumber(ARGV[4]) then
  return 'full'
end
local last = tonumber(redis.call('GET', 'aw:t') or '0')
if now <= last then now = last + 0.000001 end
local stamp = string.format('%.6f', now)
redis.call('SET', 'aw:t', stamp)
redis.call('ZADD', 'aw:tags', stamp, ARGV[1])
local key = 'aw:k:' .. ARGV[1]
redis.call('RPUSH', key, stamp .. ' ' .. ARGV[2])
redis.call('LTRIM', key, -ARGV[5], -1)
redis.call('EXPIRE', key, ARGV[3])
redis.call('EXPIRE', 'aw:tags', 2 * ARGV[3])
redis.call('PUBLISH', 'aw:knock', ARGV[1])
return 'kept'
";

const NOTES: &str = r"
local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000
local out = {}
for _, note in ipairs(redis.call('LRANGE', 'aw:k:' .. ARGV[1], 0, -1)) do
  local stamp = tonumber(string.match(note, '^[^ ]+'))
  if stamp > tonumber(ARGV[2]) and stamp > now - ARGV[3] then out[#out + 1] = note end
end
return out
";

/// A connection that mends itself, and the scripts.
pub(crate) struct Redis {
    connection: ConnectionManager,
    limits: Limits,
    announce: Script,
    list: Script,
    leave: Script,
    knock: Script,
    notes: Script,
    listening: tokio::task::JoinHandle<()>,
}

impl Redis {
    /// Connects, and listens for notes that other masters took.
    pub(crate) async fn open(url: &str, limits: Limits, waiters: &Arc<Waiters>) -> Result<Self, String> {
        let client = Client::open(url).map_err(|error| error.to_string())?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE))
            .set_number_of_retries(1);
        let connecting = client.get_connection_manager_with_config(config);
        let connection = connecting.await.map_err(|error| error.to_string())?;
        let listening = tokio::spawn(listen(client, Arc::clone(waiters)));
        Ok(Self {
            connection,
            limits,
            announce: Script::new(ANNOUNCE),
            list: Script::new(LIST),
            leave: Script::new(LEAVE),
            knock: Script::new(KNOCK),
            notes: Script::new(NOTES),
            listening,
        })
    }

    async fn ask(&self, op: Op) -> Result<Outcome, RedisError> {
        let mut connection = self.connection.clone();
        let connection = &mut connection;
        let Limits { rows, row_ttl, tags, notes, note_ttl, .. } = self.limits;
        Ok(match op {
            Op::Announce { announce, network } => {
                let mut call = self.announce.prepare_invoke();
                // The row is kept in the form it was announced in, which is the form it is read in.
                call.arg(&announce.id).arg(announce.write()).arg(network.to_string()).arg(row_ttl).arg(rows);
                let said: String = call.invoke_async(connection).await?;
                if said == "full" { Outcome::Full } else { Outcome::Taken { changed: said == "changed" } }
            }
            Op::Leave { id } => {
                let gone: u32 = self.leave.prepare_invoke().arg(id).invoke_async(connection).await?;
                Outcome::Taken { changed: gone > 0 }
            }
            Op::List => {
                let flat: Vec<Vec<u8>> = self.list.prepare_invoke().arg(row_ttl).invoke_async(connection).await?;
                Outcome::Rows(flat.chunks_exact(2).filter_map(row).collect())
            }
            Op::Knock { tag, blob, grants } => {
                let note = codec::to_json(&Note { t: 0.0, blob, grants }.value());
                let mut call = self.knock.prepare_invoke();
                call.arg(tag.as_str()).arg(note).arg(note_ttl).arg(tags).arg(notes);
                let said: String = call.invoke_async(connection).await?;
                if said == "full" { Outcome::Full } else { Outcome::Kept }
            }
            Op::Notes { tag, since } => {
                let mut call = self.notes.prepare_invoke();
                call.arg(tag.as_str()).arg(format!("{since:.6}")).arg(note_ttl);
                let found: Vec<String> = call.invoke_async(connection).await?;
                Outcome::Notes(found.iter().filter_map(|text| note(text)).collect())
            }
        })
    }
}

impl Store for Redis {
    fn run(&self, op: Op) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            match tokio::time::timeout(PATIENCE, self.ask(op)).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) | Err(_) => Outcome::Unavailable,
            }
        })
    }

    fn len(&self) -> Option<(usize, usize)> {
        None
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

fn row(pair: &[Vec<u8>]) -> Option<Row> {
    let [age, body] = pair else { return None };
    let Announce { game, .. } = Announce::read(body).ok()?;
    Some(Row { game, age: std::str::from_utf8(age).ok()?.parse().ok()? })
}

fn note(text: &str) -> Option<Note> {
    let (stamp, body) = text.split_once(' ')?;
    let mut note = Note::read(&serde_json::from_str(body).ok()?)?;
    note.t = stamp.parse().ok()?;
    Some(note)
}

/// Wakes held polls for notes that any master took; connects anew when the connection breaks.
async fn listen(client: Client, waiters: Arc<Waiters>) {
    loop {
        if let Ok(mut pubsub) = client.get_async_pubsub().await
            && pubsub.subscribe("aw:knock").await.is_ok()
        {
            let mut messages = pubsub.on_message();
            while let Some(message) = messages.next().await {
                if let Some(tag) = message.get_payload::<String>().ok().and_then(|text| Tag::new(&text)) {
                    waiters.wake(&tag);
                }
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

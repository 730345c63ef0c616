//! SHA instructions of x86-64, several compressions at a time.
//!
//! One compression is a chain: each instruction waits for the one before, and the unit that runs them is idle most of
//! the time. Keystream blocks depend on nothing but their index, so up to four of them, or two next to a block of the
//! tag's chain, run interleaved. On top of that the first eight message words of every keystream block are the key and
//! the next two the same for a whole frame: the state after their ten rounds, and what the message schedule takes from
//! them, are computed once. AVX is there for its three-operand forms, which save a tenth of the time in copies.
//!
//! This file is the one place under `proto/` where `unsafe` is allowed. Loads and stores go through references to
//! arrays of the right size; what is left is calling functions compiled for instructions, which [`Kernel::detect`]
//! looked for.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, _mm_add_epi8, _mm_add_epi32, _mm_alignr_epi8, _mm_and_si128, _mm_cmpeq_epi8, _mm_cmpgt_epi8,
    _mm_loadu_si128, _mm_or_si128, _mm_set_epi8, _mm_set_epi32, _mm_set_epi64x, _mm_set1_epi8, _mm_setzero_si128,
    _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32, _mm_shuffle_epi8, _mm_shuffle_epi32,
    _mm_storeu_si128, _mm_unpackhi_epi64, _mm_unpacklo_epi64, _mm_xor_si128,
};

use crate::cipher::{Ahead, HEAD, OUTER_BITS, START, STREAM_BITS, TAG, pad, sign_block};

/// SHA-256's round constants (FIPS 180-4, section 4.2.2), four to a group.
const ROUND: [[u32; 4]; 16] = [
    [0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5],
    [0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5],
    [0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3],
    [0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174],
    [0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc],
    [0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da],
    [0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7],
    [0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967],
    [0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13],
    [0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85],
    [0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3],
    [0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070],
    [0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5],
    [0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3],
    [0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208],
    [0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2],
];

/// A SHA-256 state as the instructions want it: words a, b, e, f and c, d, g, h, the first of each on top.
#[derive(Clone, Copy)]
struct State {
    abef: __m128i,
    cdgh: __m128i,
}

/// One compression under way: its state and the sixteen message words in sight.
#[derive(Clone, Copy)]
struct Lane {
    state: State,
    words: [__m128i; 4],
}

/// Key-dependent constants, and the proof that the instructions exist.
pub(crate) struct Kernel {
    /// A keystream block after its first eight rounds.
    after_key: State,
    start: State,
    /// The message schedule's first step over words 0 to 4.
    key_ahead: __m128i,
    /// Words 4 to 7.
    key_high: __m128i,
    inner: State,
    outer: State,
}

/// What the keystream blocks of one frame share.
#[derive(Clone, Copy)]
struct Nonce {
    salt: i32,
    counter: i32,
    /// The message schedule's first step over words 4 to 8.
    ahead: __m128i,
    /// A keystream block after ten rounds.
    state: State,
}

impl Kernel {
    /// The kernel, if this processor has the instructions.
    pub(crate) fn detect(encryption: &[u8; 32], inner: &[u32; 8], outer: &[u32; 8]) -> Option<Self> {
        let found = is_x86_feature_detected!("sha")
            && is_x86_feature_detected!("sse4.1")
            && is_x86_feature_detected!("ssse3")
            && is_x86_feature_detected!("avx");
        if found {
            // SAFETY: all four features were just found.
            Some(unsafe { Self::new(encryption, inner, outer) })
        } else {
            None
        }
    }

    /// See [`crate::cipher::Cipher::seal`].
    pub(crate) fn seal(&self, frame: &mut [u8]) {
        // SAFETY: a kernel exists only where `detect` found the instructions.
        unsafe { self.seal_with_sha(frame) }
    }

    /// See [`crate::cipher::Cipher::tag_sealed`].
    pub(crate) fn tag_sealed(&self, data: &[u8], ahead: &mut Ahead) -> [u8; TAG] {
        // SAFETY: a kernel exists only where `detect` found the instructions.
        unsafe { self.tag_sealed_with_sha(data, ahead) }
    }

    /// See [`crate::cipher::Cipher::tag_signed`].
    pub(crate) fn tag_signed(&self, data: &[u8]) -> [u8; TAG] {
        // SAFETY: a kernel exists only where `detect` found the instructions.
        unsafe { self.tag_signed_with_sha(data) }
    }

    /// XORs the keystream from block `first` on into `body`.
    pub(crate) fn stream(&self, head: [u8; HEAD], first: u32, body: &mut [u8]) {
        // SAFETY: a kernel exists only where `detect` found the instructions.
        unsafe { self.stream_with_sha(head, first, body) }
    }

    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn new(encryption: &[u8; 32], inner: &[u32; 8], outer: &[u32; 8]) -> Self {
        let mut block = [0; 64];
        for (to, byte) in block.iter_mut().zip(encryption) {
            *to = *byte;
        }
        let start = load_state(&START);
        let mut lane = Lane { state: start, words: load_block(&block) };
        group::<0, false>(&mut lane);
        group::<1, false>(&mut lane);
        let [key_low, key_high, ..] = lane.words;
        Self {
            after_key: lane.state,
            start,
            key_ahead: _mm_sha256msg1_epu32(key_low, key_high),
            key_high,
            inner: load_state(inner),
            outer: load_state(outer),
        }
    }

    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn seal_with_sha(&self, frame: &mut [u8]) {
        let Some((data, tag)) = frame.split_last_chunk_mut::<TAG>() else { return };
        let total = data.len();
        let Some((head, body)) = data.split_first_chunk_mut::<HEAD>() else { return };
        let nonce = self.nonce(*head);
        let (mut chain, mut index, mut left) = (self.inner, 0, body.len());
        let mut stream = match left {
            0..=32 => {
                let [one] = self.keystream::<1>(nonce, index);
                [one, one]
            }
            _ => self.keystream::<2>(nonce, index),
        };

        // The tag's blocks begin eight bytes, the head, before the ciphertext's. They are put together in registers:
        // reading back what was just written would stall.
        let mut before = _mm_set_epi64x(i64::from_le_bytes(*head), 0);
        let (whole, rest) = body.as_chunks_mut::<64>();
        for chunk in whole {
            let text = encrypt(chunk, stream);
            let words = words_after(before, text);
            let [.., last] = text;
            (before, index, left) = (last, index + 2, left - 64);
            match left {
                0 => compress(&mut chain, words),
                1..=32 => {
                    let [one] = self.absorb::<1>(&mut chain, words, nonce, index);
                    stream = [one, one];
                }
                _ => stream = self.absorb::<2>(&mut chain, words, nonce, index),
            }
        }
        *tag = self.seal_rest(chain, before, stream, rest, total);
    }

    /// Encrypts the last bytes, under 64, and closes the tag of `total` bytes.
    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn seal_rest(
        &self,
        mut chain: State,
        before: __m128i,
        stream: [[__m128i; 2]; 2],
        rest: &mut [u8],
        total: usize,
    ) -> [u8; TAG] {
        let mut buffer = [0; 64];
        let (used, _) = buffer.split_at_mut(rest.len());
        used.copy_from_slice(rest);
        let text = encrypt(&mut buffer, stream);
        let (used, _) = buffer.split_at(rest.len());
        rest.copy_from_slice(used);

        // Cut the keystream off behind the text and put SHA-256's end mark there.
        let end = _mm_set1_epi8(i8::try_from(used.len()).unwrap_or_default());
        let mut at = _mm_set_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        let mut marked = text;
        for part in &mut marked {
            let mark = _mm_and_si128(_mm_cmpeq_epi8(at, end), _mm_set1_epi8(i8::MIN));
            *part = _mm_or_si128(_mm_and_si128(*part, _mm_cmpgt_epi8(end, at)), mark);
            at = _mm_add_epi8(at, _mm_set1_epi8(16));
        }
        // The key block counts.
        let bits = u64::try_from(total + 64).unwrap_or_default() << 3;
        let length = _mm_set_epi64x(bits.rotate_left(32).cast_signed(), 0);
        let [a, b, c, d] = words_after(before, marked);
        if used.len() < 48 {
            compress(&mut chain, [a, b, c, _mm_or_si128(d, length)]);
        } else {
            compress(&mut chain, [a, b, c, d]);
            let zero = _mm_setzero_si128();
            let [over, ..] = words_after(marked[3], [zero; 4]);
            compress(&mut chain, [over, zero, zero, length]);
        }
        self.close(chain)
    }

    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn tag_sealed_with_sha(&self, data: &[u8], ahead: &mut Ahead) -> [u8; TAG] {
        ahead.ready = 0;
        let Some((head, body)) = data.split_first_chunk::<HEAD>() else { return [0; TAG] };
        let nonce = self.nonce(*head);
        let wanted = body.len().div_ceil(32).min(ahead.blocks.len());
        let (wanted, _) = ahead.blocks.split_at_mut(wanted);
        ahead.ready = wanted.len();

        let mut room = wanted.chunks_mut(2);
        let mut rest = data;
        let mut chain = self.inner;
        let mut index = 0;
        while let Some((block, later)) = rest.split_first_chunk::<64>() {
            self.absorb_into(&mut chain, block, nonce, index, room.next().unwrap_or_default());
            index += 2;
            rest = later;
        }
        let (padded, count) = pad(rest, data.len());
        for block in padded.iter().take(count) {
            self.absorb_into(&mut chain, block, nonce, index, room.next().unwrap_or_default());
            index += 2;
        }
        self.close(chain)
    }

    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn tag_signed_with_sha(&self, data: &[u8]) -> [u8; TAG] {
        let total = data.len() + 4;
        let (block, rest) = sign_block(data);
        let Some(mut rest) = rest else {
            return self.finish(self.inner, block.get(..total).unwrap_or_default(), total);
        };
        let mut chain = self.inner;
        compress(&mut chain, load_block(&block));
        while let Some((block, later)) = rest.split_first_chunk::<64>() {
            compress(&mut chain, load_block(block));
            rest = later;
        }
        self.finish(chain, rest, total)
    }

    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn stream_with_sha(&self, head: [u8; HEAD], first: u32, body: &mut [u8]) {
        let nonce = self.nonce(head);
        for (index, chunk) in (first..).step_by(4).zip(body.chunks_mut(128)) {
            xor(chunk, &self.keystream::<4>(nonce, index));
        }
    }

    /// The tag of an inner message of `total` bytes that ends in `rest`, under a block, from the state before it.
    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn finish(&self, mut chain: State, rest: &[u8], total: usize) -> [u8; TAG] {
        let (padded, count) = pad(rest, total);
        for block in padded.iter().take(count) {
            compress(&mut chain, load_block(block));
        }
        self.close(chain)
    }

    /// The outer hash over the inner one.
    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn close(&self, chain: State) -> [u8; TAG] {
        // Digest words in message order: pairs come out of the state swapped.
        let low = _mm_shuffle_epi32::<0xB1>(_mm_unpackhi_epi64(chain.abef, chain.cdgh));
        let high = _mm_shuffle_epi32::<0xB1>(_mm_unpacklo_epi64(chain.abef, chain.cdgh));
        let third = _mm_set_epi32(0, 0, 0, i32::MIN);
        let fourth = _mm_set_epi32(OUTER_BITS.cast_signed(), 0, 0, 0);
        let mut outer = self.outer;
        compress(&mut outer, [low, high, third, fourth]);
        let mut bytes = [0; 32];
        store_block(&mut bytes, digest(outer));
        bytes.first_chunk().copied().unwrap_or_default()
    }

    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn nonce(&self, [a, b, c, d, w, x, y, z]: [u8; HEAD]) -> Nonce {
        let salt = i32::from_be_bytes([a, b, c, d]);
        let counter = i32::from_be_bytes([w, x, y, z]);
        let ahead = _mm_sha256msg1_epu32(self.key_high, _mm_set_epi32(0, 0, 0, salt));
        let [k0, k1, ..] = ROUND[2];
        let third = _mm_set_epi32(0, 0, counter.wrapping_add(k1.cast_signed()), salt.wrapping_add(k0.cast_signed()));
        let State { abef, cdgh } = self.after_key;
        let state = State { abef, cdgh: _mm_sha256rnds2_epu32(cdgh, abef, third) };
        Nonce { salt, counter, ahead, state }
    }

    /// `N` keystream blocks from `index` on.
    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn keystream<const N: usize>(&self, nonce: Nonce, index: u32) -> [[__m128i; 2]; N] {
        let mut lanes = self.lanes::<N>(nonce, index);
        mix::<0, N>(&mut [], &mut lanes);
        self.digests(lanes)
    }

    /// One block into the tag's chain and, at the same time, `N` keystream blocks from `index` on.
    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn absorb<const N: usize>(
        &self,
        chain: &mut State,
        words: [__m128i; 4],
        nonce: Nonce,
        index: u32,
    ) -> [[__m128i; 2]; N] {
        let mut lanes = self.lanes::<N>(nonce, index);
        let mut tag = [Lane { state: *chain, words }];
        mix::<1, N>(&mut tag, &mut lanes);
        let [Lane { state, .. }] = tag;
        *chain = add(state, *chain);
        self.digests(lanes)
    }

    /// [`Kernel::absorb`] with as many keystream blocks as there is `room` for, at most two.
    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn absorb_into(&self, chain: &mut State, block: &[u8; 64], nonce: Nonce, index: u32, room: &mut [[u8; 32]]) {
        let words = load_block(block);
        match room {
            [] => compress(chain, words),
            [one] => {
                let [made] = self.absorb::<1>(chain, words, nonce, index);
                store_block(one, made);
            }
            [one, two, ..] => {
                let [first, second] = self.absorb::<2>(chain, words, nonce, index);
                store_block(one, first);
                store_block(two, second);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn lanes<const N: usize>(&self, nonce: Nonce, index: u32) -> [Lane; N] {
        let mut lanes = [self.lane(nonce, index); N];
        for (lane, index) in lanes.iter_mut().zip(index..) {
            *lane = self.lane(nonce, index);
        }
        lanes
    }

    /// A keystream block with its key rounds done.
    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn lane(&self, nonce: Nonce, index: u32) -> Lane {
        let third = _mm_set_epi32(i32::MIN, index.cast_signed(), nonce.counter, nonce.salt);
        let fourth = _mm_set_epi32(STREAM_BITS.cast_signed(), 0, 0, 0);
        Lane { state: nonce.state, words: [self.key_ahead, nonce.ahead, third, fourth] }
    }

    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3,avx")]
    fn digests<const N: usize>(&self, lanes: [Lane; N]) -> [[__m128i; 2]; N] {
        let mut out = [[self.key_high; 2]; N];
        for (out, lane) in out.iter_mut().zip(&lanes) {
            *out = digest(add(lane.state, self.start));
        }
        out
    }
}

/// One compression of the tag's chain by itself.
#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3,avx")]
fn compress(chain: &mut State, words: [__m128i; 4]) {
    let mut lane = [Lane { state: *chain, words }];
    mix::<1, 0>(&mut lane, &mut []);
    let [Lane { state, .. }] = lane;
    *chain = add(state, *chain);
}

/// All rounds of `M` whole compressions and of `N` keystream blocks, whose first two groups are done.
#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3,avx")]
fn mix<const M: usize, const N: usize>(whole: &mut [Lane; M], stream: &mut [Lane; N]) {
    macro_rules! groups {
        ($($g:literal)*) => {$(
            for lane in whole.iter_mut() {
                group::<$g, false>(lane);
            }
            if $g >= 2 {
                for lane in stream.iter_mut() {
                    group::<$g, true>(lane);
                }
            }
        )*};
    }
    groups!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
}

/// Four rounds, after the message words they need. In a keystream block the places of words 0 to 7 hold what the
/// schedule makes of them.
#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3,avx")]
fn group<const G: usize, const STREAM: bool>(lane: &mut Lane) {
    let Lane { state, words: [a, b, c, d] } = lane;
    let word = match G % 4 {
        0 => schedule::<G, STREAM>(a, *b, *c, *d),
        1 => schedule::<G, STREAM>(b, *c, *d, *a),
        2 => schedule::<G, STREAM>(c, *d, *a, *b),
        _ => schedule::<G, STREAM>(d, *a, *b, *c),
    };
    #[allow(clippy::indexing_slicing, reason = "checked by the compiler: the index is a constant")]
    let [k0, k1, k2, k3] = const { ROUND[G] };
    let sum =
        _mm_add_epi32(word, _mm_set_epi32(k3.cast_signed(), k2.cast_signed(), k1.cast_signed(), k0.cast_signed()));
    if !(STREAM && G == 2) {
        state.cdgh = _mm_sha256rnds2_epu32(state.cdgh, state.abef, sum);
    }
    state.abef = _mm_sha256rnds2_epu32(state.abef, state.cdgh, _mm_shuffle_epi32::<0x0E>(sum));
}

/// The message words of group `G`, which take the place of those four groups back.
#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3,avx")]
fn schedule<const G: usize, const STREAM: bool>(at: &mut __m128i, b: __m128i, c: __m128i, d: __m128i) -> __m128i {
    if G >= 4 {
        let first = if STREAM && G < 6 { *at } else { _mm_sha256msg1_epu32(*at, b) };
        *at = _mm_sha256msg2_epu32(_mm_add_epi32(first, _mm_alignr_epi8::<4>(d, c)), d);
    }
    *at
}

#[inline]
#[target_feature(enable = "sse2")]
fn add(a: State, b: State) -> State {
    State { abef: _mm_add_epi32(a.abef, b.abef), cdgh: _mm_add_epi32(a.cdgh, b.cdgh) }
}

/// The state as bytes of a digest, in two halves.
#[inline]
#[target_feature(enable = "ssse3")]
fn digest(state: State) -> [__m128i; 2] {
    // Words come out of the state in pairs and swapped; reversing the bytes of a pair puts both right.
    let turn = _mm_set_epi8(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    [
        _mm_shuffle_epi8(_mm_unpackhi_epi64(state.abef, state.cdgh), turn),
        _mm_shuffle_epi8(_mm_unpacklo_epi64(state.abef, state.cdgh), turn),
    ]
}

#[inline]
#[target_feature(enable = "sse2")]
fn load_state(&[a, b, c, d, e, f, g, h]: &[u32; 8]) -> State {
    State {
        abef: _mm_set_epi32(a.cast_signed(), b.cast_signed(), e.cast_signed(), f.cast_signed()),
        cdgh: _mm_set_epi32(c.cast_signed(), d.cast_signed(), g.cast_signed(), h.cast_signed()),
    }
}

/// Encrypts 64 bytes and hands out the ciphertext.
#[inline]
#[target_feature(enable = "sse2")]
fn encrypt(chunk: &mut [u8; 64], [[k0, k1], [k2, k3]]: [[__m128i; 2]; 2]) -> [__m128i; 4] {
    let at = chunk.as_mut_ptr().cast::<__m128i>();
    // SAFETY: `chunk` is 64 readable and writable bytes, four times sixteen, and neither needs alignment.
    unsafe {
        let text = [
            _mm_xor_si128(_mm_loadu_si128(at), k0),
            _mm_xor_si128(_mm_loadu_si128(at.add(1)), k1),
            _mm_xor_si128(_mm_loadu_si128(at.add(2)), k2),
            _mm_xor_si128(_mm_loadu_si128(at.add(3)), k3),
        ];
        _mm_storeu_si128(at, text[0]);
        _mm_storeu_si128(at.add(1), text[1]);
        _mm_storeu_si128(at.add(2), text[2]);
        _mm_storeu_si128(at.add(3), text[3]);
        text
    }
}

/// The last eight bytes of `before` and all but the last eight of `text`, as big-endian words.
#[inline]
#[target_feature(enable = "ssse3")]
fn words_after(before: __m128i, [a, b, c, d]: [__m128i; 4]) -> [__m128i; 4] {
    turned([
        _mm_alignr_epi8::<8>(a, before),
        _mm_alignr_epi8::<8>(b, a),
        _mm_alignr_epi8::<8>(c, b),
        _mm_alignr_epi8::<8>(d, c),
    ])
}

/// Bytes as big-endian words.
#[inline]
#[target_feature(enable = "ssse3")]
fn turned([a, b, c, d]: [__m128i; 4]) -> [__m128i; 4] {
    let turn = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    [_mm_shuffle_epi8(a, turn), _mm_shuffle_epi8(b, turn), _mm_shuffle_epi8(c, turn), _mm_shuffle_epi8(d, turn)]
}

/// A block as big-endian words.
#[inline]
#[target_feature(enable = "ssse3")]
fn load_block(block: &[u8; 64]) -> [__m128i; 4] {
    let from = block.as_ptr().cast::<__m128i>();
    // SAFETY: `block` is 64 readable bytes, four times sixteen, and the loads need no alignment.
    let bytes = unsafe {
        [
            _mm_loadu_si128(from),
            _mm_loadu_si128(from.add(1)),
            _mm_loadu_si128(from.add(2)),
            _mm_loadu_si128(from.add(3)),
        ]
    };
    turned(bytes)
}

#[inline]
#[target_feature(enable = "sse2")]
fn store_block(to: &mut [u8; 32], [low, high]: [__m128i; 2]) {
    let to = to.as_mut_ptr().cast::<__m128i>();
    // SAFETY: `to` is 32 writable bytes, twice sixteen, and the stores need no alignment.
    unsafe {
        _mm_storeu_si128(to, low);
        _mm_storeu_si128(to.add(1), high);
    }
}

/// XORs `blocks` into `body`, as far as both go.
#[inline]
#[target_feature(enable = "sse2")]
fn xor(body: &mut [u8], blocks: &[[__m128i; 2]]) {
    for (chunk, &[low, high]) in body.chunks_mut(32).zip(blocks) {
        if let Ok(chunk) = <&mut [u8; 32]>::try_from(&mut *chunk) {
            let at = chunk.as_mut_ptr().cast::<__m128i>();
            // SAFETY: `chunk` is 32 readable and writable bytes, twice sixteen, and neither needs alignment.
            unsafe {
                _mm_storeu_si128(at, _mm_xor_si128(_mm_loadu_si128(at), low));
                _mm_storeu_si128(at.add(1), _mm_xor_si128(_mm_loadu_si128(at.add(1)), high));
            }
        } else {
            let mut bytes = [0; 32];
            store_block(&mut bytes, [low, high]);
            for (byte, key) in chunk.iter_mut().zip(bytes) {
                *byte ^= key;
            }
        }
    }
}

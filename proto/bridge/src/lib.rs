//! The game-side datagram link: 57-byte header, acknowledgements, resend

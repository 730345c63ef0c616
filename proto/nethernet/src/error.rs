//! Why a session ended: one number, the same in CONNECTERROR and for the application (NetherNet, section 4).

use std::fmt;

macro_rules! session_errors {
    ($($code:literal $name:ident $text:literal,)*) => {
        /// Why a session ended or did not begin (`ESessionError`; NetherNet, section 4).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum SessionError {
            $(#[doc = concat!("Code ", stringify!($code), ": ", $text, ".")] $name,)*
            /// A code that nobody has given a name.
            Unknown(u32),
        }

        impl SessionError {
            /// Every error with a name.
            pub const NAMED: &[Self] = &[$(Self::$name,)*];

            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> u32 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Unknown(code) => code,
                }
            }

            /// What a number means.
            #[must_use]
            pub const fn from_code(code: u32) -> Self {
                match code {
                    $($code => Self::$name,)*
                    code => Self::Unknown(code),
                }
            }

            /// The name the protocol gives it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::Unknown(_) => "Unknown",
                }
            }

            const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Unknown(_) => "an error without a name",
                }
            }
        }
    };
}

session_errors! {
    0 None "no error",
    1 DestinationNotLoggedIn "the other side is not signed in",
    2 NegotiationTimeout "negotiation took too long",
    3 WrongTransportVersion "the other side speaks another version of the transport",
    4 FailedToCreatePeerConnection "the WebRTC engine could not be started",
    5 Ice "no network path between both sides works",
    6 ConnectRequest "the offer could not be handled",
    7 ConnectResponse "the answer could not be handled",
    8 CandidateAdd "a candidate could not be handled",
    9 InactivityTimeout "nothing was heard for too long",
    10 FailedToCreateOffer "no offer could be made",
    11 FailedToCreateAnswer "no answer could be made",
    12 FailedToSetLocalDescription "the own description was not accepted by the engine",
    13 FailedToSetRemoteDescription "the other side's description cannot be used",
    14 NegotiationTimeoutWaitingForResponse "nobody answered the offer in time",
    15 NegotiationTimeoutWaitingForAccept "the connection was not up in time after the answer",
    16 IncomingConnectionIgnored "the other side takes no connection now",
    17 SignalingParsingFailure "a signalling message could not be read",
    18 SignalingUnknownError "signalling failed",
    19 SignalingUnicastMessageDeliveryFailed "a signalling message could not be delivered",
    20 SignalingBroadcastDeliveryFailed "a signalling message could not be broadcast",
    21 SignalingMessageDeliveryFailed "a signalling message could not be delivered to its service",
    22 SignalingTurnAuthFailed "the credentials for the relay were refused",
    23 SignalingFallbackToBestEffortDelivery "signalling fell back to delivery without confirmation",
    24 NoSignalingChannel "there is no signalling channel to that id",
    25 NotLoggedIn "this side is not signed in",
    26 SignalingFailedToSend "a signalling message could not be sent",
    27 RelayServerConfigurationResultFailure "no relay configuration was given",
    28 RelayServerConfigurationResultParsingErrorNoUrls "the relay configuration names no address",
    29 RelayServerConfigurationResultParsingErrorNoCreds "the relay configuration has no credentials",
    30 RelayServerConfigurationResultParsingErrorNoServers "the relay configuration names no server",
    31 RelayServerConfigurationResultParsingErrorNoExpiration "the relay configuration does not say until when",
    32 DataChannelClosed "a data channel was closed",
    33 InternalErrorJsonSerialization "a message could not be written",
    34 InvalidArgument "an argument was not valid",
    35 GenericFailure "something failed",
    36 Reserved36 "an error that is seen in the field and whose meaning is not public",
    37 IdentityVerificationFailed "the identity was missing, not valid or not allowed",
}

impl fmt::Display for SessionError {
    /// A sentence's worth, with the number for whoever compares logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (error {})", self.text(), self.code())
    }
}

impl std::error::Error for SessionError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pain_2_numbers_are_pinned_0_to_37() {
        let codes: Vec<u32> = SessionError::NAMED.iter().map(|e| e.code()).collect();
        assert_eq!(codes, (0..38).collect::<Vec<_>>());
        assert_eq!(SessionError::SignalingUnicastMessageDeliveryFailed.code(), 19);
        assert_eq!(SessionError::DataChannelClosed.code(), 32);
    }

    #[test]
    fn pain_12_a_refused_identity_is_told_by_name() {
        let said = SessionError::from_code(37);
        assert_eq!(said.name(), "IdentityVerificationFailed");
        assert_eq!(said.to_string(), "the identity was missing, not valid or not allowed (error 37)");
    }

    proptest! {
        #[test]
        fn every_number_comes_back(code: u32) {
            prop_assert_eq!(SessionError::from_code(code).code(), code);
        }
    }
}

//! Admission, names, letters, roster, chat, companies, start

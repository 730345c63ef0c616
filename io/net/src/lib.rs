//! Sockets: UDP batches, timers, buffers, interfaces; no protocol

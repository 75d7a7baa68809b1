//! weightcast: memory regions, the transfer engine, same-host reads and TCP

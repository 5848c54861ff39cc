/* SPDX-License-Identifier: MIT
 *
 * The card's server, and its connections with programs (preload/protocol.h).
 */
#ifndef EMU_SERVE_H
#define EMU_SERVE_H

#include <fcntl.h>

#include "entry.h"
#include "preload/protocol.h"

struct emu_server {
	struct emu_gpu *gpu;
	pthread_mutex_t lock; /* of connections */
	pthread_cond_t changed; /* a connection has gone */
	pthread_mutex_t sweeping; /* taken before all others */
	struct emu_list connections;
	pthread_t thread;
	int listener, events, closes, ending;
	bool uncertain; /* atomically: a close was told of, perhaps too early to see what it did */
	bool may_spin; /* there is a processor for each side */
};

struct emu_connection {
	struct emu_server *server;
	struct emu_list link;
	struct emu_channel *channel;
	int socket;
	struct emu_caller caller;
};

/* serve.c. Release the files whose last descriptor was closed. With `asked` even if no close was seen. */
void emu_server_sweep(struct emu_server *server, bool asked);

/* serve_connection.c: greet who connected, and answer in a thread of its own, which takes the connection
 * over. */
int emu_connection_start(struct emu_server *server, int socket, pid_t process);
void emu_connection_end(struct emu_connection *connection); /* with server->lock; it goes later */

#endif

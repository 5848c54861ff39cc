/* SPDX-License-Identifier: MIT
 *
 * Descriptors through a socket.
 */
#ifndef EMU_MESSAGE_H
#define EMU_MESSAGE_H

/* A message of one byte, with a descriptor if fd >= 0. */
int emu_message_send(int socket, int fd);
int emu_message_receive(int socket); /* its descriptor, which exec closes; or a negative errno */

#endif

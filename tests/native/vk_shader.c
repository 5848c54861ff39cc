/* SPDX-License-Identifier: MIT
 *
 * What RADV does by a shader, which the emulated card hasn't: filling much of a buffer in VRAM. The job
 * fails, nothing is written, and the next submission is told.
 */
#include "vk_fixture.h"

#define BYTES (1 << 20)

int main(void)
{
	struct vk vk;
	struct vk_buffer card, host;
	VkMemoryRequirements needs;

	vk_begin(&vk, "gfx", NULL, 0);
	host = vk_host_buffer(&vk, BYTES);
	card = vk_buffer_create(&vk, BYTES, 0);
	vkGetBufferMemoryRequirements(vk.device, card.buffer, &needs);
	card.memory = vk_memory(&vk, needs.size, needs.memoryTypeBits, false);
	VK_OK(vkBindBufferMemory(vk.device, card.buffer, card.memory, 0));
	vkCmdFillBuffer(vk_commands(&vk), card.buffer, 0, BYTES, 0x5eed5eed);
	vk_barrier(&vk);
	vk_copy(&vk, &card, 0, &host, 0, BYTES);
	vk_run(&vk);
	for (uint32_t i = 0; i < BYTES; i++)
		CHECK_EQ(host.view[i], 0);
	CHECK_EQ(vk_try_submit(&vk, VK_NULL_HANDLE), VK_ERROR_DEVICE_LOST);
	vk_buffer_destroy(&vk, &card);
	vk_buffer_destroy(&vk, &host);
	vk_end(&vk);
	return 0;
}

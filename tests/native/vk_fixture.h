/* SPDX-License-Identifier: MIT
 *
 * Vulkan, as far as the programs vk_*.c need it: RADV's device, a queue for copies, buffers, sparse
 * binding. All work goes along one timeline semaphore, and the process waits only where it looks.
 */
#ifndef VK_FIXTURE_H
#define VK_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <vulkan/vulkan.h>

#include "check.h"

#define AMD 0x1002
#define FAMILIES 16
#define SOON_NS 60000000000ull /* a wait that takes longer has failed */

#define VK_OK(call)                                                                                \
	do {                                                                                       \
		VkResult result_ = (call);                                                         \
		if (result_ != VK_SUCCESS)                                                         \
			CHECK_FAIL("%s: VkResult %d", #call, result_);                             \
	} while (0)

struct vk {
	VkInstance instance;
	VkPhysicalDevice card;
	VkPhysicalDeviceMemoryProperties memory;
	VkDevice device;
	VkQueue copies, binds;
	VkCommandPool pool;
	VkCommandBuffer commands; /* being recorded */
	VkSemaphore timeline;
	uint64_t point; /* of what was submitted last */
};

/* A buffer with its memory, which the process sees if it is the host's. */
struct vk_buffer {
	VkBuffer buffer;
	VkDeviceMemory memory;
	VkDeviceSize bytes;
	uint8_t *view;
};

/* ---- the device ---------------------------------------------------------------------------------- */

static inline void vk_card_find(struct vk *v)
{
	VkApplicationInfo application = { .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		                          .apiVersion = VK_API_VERSION_1_2 };
	VkInstanceCreateInfo create = { .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		                        .pApplicationInfo = &application };
	VkPhysicalDevice cards[8];
	VkPhysicalDeviceProperties properties;
	uint32_t n = 8;

	VK_OK(vkCreateInstance(&create, NULL, &v->instance));
	VK_OK(vkEnumeratePhysicalDevices(v->instance, &n, cards));
	for (uint32_t i = 0; i < n; i++) {
		vkGetPhysicalDeviceProperties(cards[i], &properties);
		if (properties.vendorID == AMD)
			v->card = cards[i];
	}
	if (!v->card)
		CHECK_FAIL("no card of AMD's among %u Vulkan devices", n);
	vkGetPhysicalDeviceMemoryProperties(v->card, &v->memory);
}

/* The family with these capabilities and the fewest others. */
static inline uint32_t vk_family_find(struct vk *v, VkQueueFlags wanted, VkQueueFlags unwanted)
{
	VkQueueFamilyProperties families[FAMILIES];
	uint32_t n = FAMILIES;

	vkGetPhysicalDeviceQueueFamilyProperties(v->card, &n, families);
	for (uint32_t i = 0; i < n; i++)
		if ((families[i].queueFlags & wanted) == wanted && !(families[i].queueFlags & unwanted))
			return i;
	CHECK_FAIL("no queue family has 0x%x without 0x%x", wanted, unwanted);
	return 0;
}

/* The families by what they are called on the command line. */
static inline uint32_t vk_family_named(struct vk *v, const char *name)
{
	const VkQueueFlags gfx = VK_QUEUE_GRAPHICS_BIT, compute = VK_QUEUE_COMPUTE_BIT;

	if (!strcmp(name, "gfx"))
		return vk_family_find(v, gfx, 0);
	if (!strcmp(name, "compute"))
		return vk_family_find(v, compute, gfx);
	if (!strcmp(name, "transfer"))
		return vk_family_find(v, VK_QUEUE_TRANSFER_BIT, gfx | compute);
	CHECK_FAIL("no queue is called %s: gfx, compute, transfer", name);
	return 0;
}

static inline void vk_timeline_create(struct vk *v)
{
	VkSemaphoreTypeCreateInfo type = { .sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
		                           .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE };
	VkSemaphoreCreateInfo create = { .sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
		                         .pNext = &type };

	VK_OK(vkCreateSemaphore(v->device, &create, NULL, &v->timeline));
}

static inline void vk_begin(struct vk *v, const char *queue, const char *const *extensions, uint32_t n)
{
	static const float priority = 1;
	VkDeviceQueueCreateInfo queues[2] = {
		{ .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1,
		  .pQueuePriorities = &priority },
	};
	VkPhysicalDeviceVulkan12Features features12 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
		.timelineSemaphore = VK_TRUE, .bufferDeviceAddress = VK_TRUE,
	};
	VkPhysicalDeviceFeatures features = { .sparseBinding = VK_TRUE,
		                              .sparseResidencyBuffer = VK_TRUE,
		                              .sparseResidencyAliased = VK_TRUE };
	VkDeviceCreateInfo create = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &features12,
		.pQueueCreateInfos = queues, .pEnabledFeatures = &features,
		.enabledExtensionCount = n, .ppEnabledExtensionNames = extensions,
	};
	VkCommandPoolCreateInfo pool = { .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO };

	memset(v, 0, sizeof(*v));
	vk_card_find(v);
	queues[1] = queues[0];
	queues[0].queueFamilyIndex = pool.queueFamilyIndex = vk_family_named(v, queue);
	queues[1].queueFamilyIndex = vk_family_find(v, VK_QUEUE_SPARSE_BINDING_BIT, 0);
	create.queueCreateInfoCount = queues[0].queueFamilyIndex == queues[1].queueFamilyIndex ? 1 : 2;
	VK_OK(vkCreateDevice(v->card, &create, NULL, &v->device));
	vkGetDeviceQueue(v->device, queues[0].queueFamilyIndex, 0, &v->copies);
	vkGetDeviceQueue(v->device, queues[1].queueFamilyIndex, 0, &v->binds);
	VK_OK(vkCreateCommandPool(v->device, &pool, NULL, &v->pool));
	vk_timeline_create(v);
}

static inline void vk_end(struct vk *v)
{
	vkDestroySemaphore(v->device, v->timeline, NULL);
	vkDestroyCommandPool(v->device, v->pool, NULL);
	vkDestroyDevice(v->device, NULL);
	vkDestroyInstance(v->instance, NULL);
}

/* ---- memory and buffers -------------------------------------------------------------------------- */

static inline VkDeviceMemory vk_memory(struct vk *v, VkDeviceSize bytes, uint32_t types, bool host)
{
	const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
	const VkMemoryPropertyFlags seen =
	    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
	VkMemoryPropertyFlags wanted = host ? seen : local, unwanted = host ? local : 0;
	VkMemoryAllocateInfo allocate = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		                          .allocationSize = bytes };
	VkDeviceMemory memory;

	for (uint32_t i = 0; i < v->memory.memoryTypeCount; i++) {
		VkMemoryPropertyFlags flags = v->memory.memoryTypes[i].propertyFlags;

		if (!(types >> i & 1) || (flags & wanted) != wanted || flags & unwanted)
			continue;
		allocate.memoryTypeIndex = i;
		VK_OK(vkAllocateMemory(v->device, &allocate, NULL, &memory));
		return memory;
	}
	CHECK_FAIL("no type of memory is %s", host ? "the host's" : "the card's");
	return VK_NULL_HANDLE;
}

static inline struct vk_buffer vk_buffer_create(struct vk *v, VkDeviceSize bytes,
                                                VkBufferCreateFlags flags)
{
	VkBufferCreateInfo create = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .flags = flags, .size = bytes,
		.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
		         VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
	};
	struct vk_buffer b = { .bytes = bytes };

	VK_OK(vkCreateBuffer(v->device, &create, NULL, &b.buffer));
	return b;
}

/* One in system memory, which the process sees: all zeros. */
static inline struct vk_buffer vk_host_buffer(struct vk *v, VkDeviceSize bytes)
{
	struct vk_buffer b = vk_buffer_create(v, bytes, 0);
	VkMemoryRequirements needs;
	void *view;

	vkGetBufferMemoryRequirements(v->device, b.buffer, &needs);
	b.memory = vk_memory(v, needs.size, needs.memoryTypeBits, true);
	VK_OK(vkBindBufferMemory(v->device, b.buffer, b.memory, 0));
	VK_OK(vkMapMemory(v->device, b.memory, 0, VK_WHOLE_SIZE, 0, &view));
	b.view = view;
	memset(b.view, 0, bytes);
	return b;
}

/* One with no memory yet. */
static inline struct vk_buffer vk_sparse_buffer(struct vk *v, VkDeviceSize bytes)
{
	return vk_buffer_create(v, bytes,
	                        VK_BUFFER_CREATE_SPARSE_BINDING_BIT |
	                            VK_BUFFER_CREATE_SPARSE_RESIDENCY_BIT |
	                            VK_BUFFER_CREATE_SPARSE_ALIASED_BIT);
}

static inline void vk_buffer_destroy(struct vk *v, struct vk_buffer *b)
{
	vkDestroyBuffer(v->device, b->buffer, NULL);
	vkFreeMemory(v->device, b->memory, NULL);
}

static inline uint64_t vk_address(struct vk *v, const struct vk_buffer *b)
{
	VkBufferDeviceAddressInfo info = { .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
		                           .buffer = b->buffer };

	return vkGetBufferDeviceAddress(v->device, &info);
}

/* ---- commands ------------------------------------------------------------------------------------ */

static inline VkCommandBuffer vk_commands(struct vk *v)
{
	VkCommandBufferAllocateInfo allocate = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = v->pool,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = 1,
	};
	VkCommandBufferBeginInfo begin = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO };

	if (v->commands)
		return v->commands;
	VK_OK(vkAllocateCommandBuffers(v->device, &allocate, &v->commands));
	VK_OK(vkBeginCommandBuffer(v->commands, &begin));
	return v->commands;
}

/* What follows sees what those before wrote. */
static inline void vk_barrier(struct vk *v)
{
	const VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
	VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
	};

	vkCmdPipelineBarrier(vk_commands(v), all, all, 0, 1, &barrier, 0, NULL, 0, NULL);
}

static inline void vk_copy(struct vk *v, const struct vk_buffer *from, VkDeviceSize from_offset,
                           const struct vk_buffer *to, VkDeviceSize to_offset, VkDeviceSize bytes)
{
	VkBufferCopy region = { from_offset, to_offset, bytes };

	vkCmdCopyBuffer(vk_commands(v), from->buffer, to->buffer, 1, &region);
	vk_barrier(v);
}

static inline VkTimelineSemaphoreSubmitInfo vk_next_point(struct vk *v, uint64_t points[2])
{
	points[0] = v->point;
	points[1] = ++v->point;
	return (VkTimelineSemaphoreSubmitInfo){
		.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
		.waitSemaphoreValueCount = 1, .pWaitSemaphoreValues = points,
		.signalSemaphoreValueCount = 1, .pSignalSemaphoreValues = points + 1,
	};
}

/* Submit what was recorded, after all that was submitted before. `after`: a binary semaphore to wait for
 * instead; the process waited for what is before. */
static inline VkResult vk_try_submit(struct vk *v, VkSemaphore after)
{
	const VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
	VkCommandBuffer commands = vk_commands(v);
	uint64_t points[2];
	VkTimelineSemaphoreSubmitInfo timeline = vk_next_point(v, points);
	VkSubmitInfo submit = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .pNext = &timeline, .commandBufferCount = 1,
		.pCommandBuffers = &commands, .waitSemaphoreCount = 1,
		.pWaitSemaphores = after ? &after : &v->timeline, .pWaitDstStageMask = &all,
		.signalSemaphoreCount = 1, .pSignalSemaphores = &v->timeline,
	};

	v->commands = VK_NULL_HANDLE;
	VK_OK(vkEndCommandBuffer(commands));
	return vkQueueSubmit(v->copies, 1, &submit, VK_NULL_HANDLE);
}

static inline VkResult vk_try_wait(struct vk *v)
{
	VkSemaphoreWaitInfo wait = { .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
		                     .semaphoreCount = 1, .pSemaphores = &v->timeline,
		                     .pValues = &v->point };

	return vkWaitSemaphores(v->device, &wait, SOON_NS);
}

static inline void vk_submit(struct vk *v)
{
	VK_OK(vk_try_submit(v, VK_NULL_HANDLE));
}

/* Submit, and wait until all is done. */
static inline void vk_run(struct vk *v)
{
	vk_submit(v);
	VK_OK(vk_try_wait(v));
}

/* ---- sparse binding ------------------------------------------------------------------------------ */

static inline void vk_bind(struct vk *v, const struct vk_buffer *b, const VkSparseMemoryBind *binds,
                           uint32_t n)
{
	VkSparseBufferMemoryBindInfo buffer = { b->buffer, n, binds };
	uint64_t points[2];
	VkTimelineSemaphoreSubmitInfo timeline = vk_next_point(v, points);
	VkBindSparseInfo bind = {
		.sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO, .pNext = &timeline,
		.waitSemaphoreCount = 1, .pWaitSemaphores = &v->timeline, .bufferBindCount = 1,
		.pBufferBinds = &buffer, .signalSemaphoreCount = 1, .pSignalSemaphores = &v->timeline,
	};

	VK_OK(vkQueueBindSparse(v->binds, 1, &bind, VK_NULL_HANDLE));
}

#endif

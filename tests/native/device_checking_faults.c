/* SPDX-License-Identifier: MIT
 *
 * Calls of the checking device that fail: those that are made to, and those that the inner one fails.
 */
#include <errno.h>

#include "device_checking_record.h"

uint64_t checking_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

int call_count(struct checking_device *c, enum checking_kind kind)
{
	const struct checking_fault *fault = &c->options.fault;
	uint32_t kinds = fault->kinds ? fault->kinds : ~UINT32_C(0);
	int error = fault->error ? fault->error : -EIO;
	bool hit;

	c->report.calls[kind]++;
	if (vmkv_device_is_lost(&c->base)) {
		c->report.calls_after_loss++;
		return -ENODEV;
	}
	if (!(kinds >> kind & 1))
		return 0;
	c->fault_calls++;
	hit = fault->call && (fault->forever ? c->fault_calls >= fault->call
	                                     : c->fault_calls == fault->call);
	if (fault->per_million && checking_random(&c->fault_random) % 1000000 < fault->per_million)
		hit = true;
	if (!hit)
		return 0;
	c->report.failed[kind]++;
	return vmkv_device_fail(&c->base, error, "call %llu was made to fail",
	                        (unsigned long long)c->fault_calls);
}

void checking_fault_set(struct vmkv_device *device, const struct checking_fault *fault)
{
	struct checking_device *c = checking_of(device);

	pthread_mutex_lock(&c->lock);
	c->options.fault = *fault;
	c->fault_calls = 0;
	c->fault_random = fault->seed;
	pthread_mutex_unlock(&c->lock);
}

void calls_recount(struct checking_device *c, enum checking_kind kind, size_t counted,
                   size_t issued)
{
	c->report.calls[kind] -= counted;
	c->report.calls[kind] += issued + 1;
}

int inner_failed(struct checking_device *c, int error)
{
	char text[256];

	vmkv_device_error(c->inner, text, sizeof(text));
	return vmkv_device_fail(&c->base, error, "%s", text);
}

void inner_failed_late(struct checking_device *c, const char *what)
{
	char text[200];

	vmkv_device_error(c->inner, text, sizeof(text));
	violate(c, "the inner device failed a lagging %s: %s", what, text);
}

// Choices on the device: the largest logits, so that one small read ends a token. (The logits themselves: project.cpp.)

// A warp on the host: its lanes are threads, which meet wherever lanes exchange something.
#pragma once

#include <functional>

/// lane(0) .. lane(31), together.
void run_warp(const std::function<void(int lane)>& lane);

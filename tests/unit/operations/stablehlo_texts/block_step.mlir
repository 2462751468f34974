module @jit_descend attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<11x16xf32>, %arg1: tensor<16x11xf32>, %arg2: tensor<16x2x8xf32>, %arg3: tensor<2x8xf32>, %arg4: tensor<16x48xf32>, %arg5: tensor<16xf32>, %arg6: tensor<16xf32>, %arg7: tensor<16xf32>, %arg8: tensor<2x6xi32>, %arg9: tensor<2x6xi32>) -> (tensor<11x16xf32> {jax.result_info = "result['embedding']"}, tensor<16x11xf32> {jax.result_info = "result['logits']"}, tensor<16x2x8xf32> {jax.result_info = "result['out']"}, tensor<2x8xf32> {jax.result_info = "result['out_bias']"}, tensor<16x48xf32> {jax.result_info = "result['qkv']"}, tensor<16xf32> {jax.result_info = "result['rms']"}, tensor<16xf32> {jax.result_info = "result['scale']"}, tensor<16xf32> {jax.result_info = "result['shift']"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2x6xi32>
    %1 = stablehlo.compare LT, %arg8, %0, SIGNED : (tensor<2x6xi32>, tensor<2x6xi32>) -> tensor<2x6xi1>
    %c_0 = stablehlo.constant dense<11> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x6xi32>
    %3 = stablehlo.add %arg8, %2 : tensor<2x6xi32>
    %4 = stablehlo.select %1, %3, %arg8 : tensor<2x6xi1>, tensor<2x6xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x6xi32>) -> tensor<2x6x1xi32>
    %6 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 16>}> : (tensor<11x16xf32>, tensor<2x6x1xi32>) -> tensor<2x6x16xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %cst_1 = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %10 = stablehlo.divide %8, %9 : tensor<2x6x1xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x16xf32>
    %12 = stablehlo.subtract %6, %11 : tensor<2x6x16xf32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %13:4 = call @_var(%6, %c_2) : (tensor<2x6x16xf32>, tensor<i32>) -> (tensor<2x6x1xf32>, tensor<2x6x16xf32>, tensor<f32>, tensor<i1>)
    %cst_3 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %15 = stablehlo.add %13#0, %14 : tensor<2x6x1xf32>
    %16 = stablehlo.sqrt %15 : tensor<2x6x1xf32>
    %cst_4 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %17 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %18 = stablehlo.divide %17, %16 : tensor<2x6x1xf32>
    %19 = stablehlo.broadcast_in_dim %16, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x16xf32>
    %20 = stablehlo.divide %12, %19 : tensor<2x6x16xf32>
    %21 = stablehlo.multiply %16, %16 : tensor<2x6x1xf32>
    %cst_5 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %22 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %23 = stablehlo.divide %22, %21 : tensor<2x6x1xf32>
    %24 = stablehlo.broadcast_in_dim %arg6, dims = [2] : (tensor<16xf32>) -> tensor<1x1x16xf32>
    %25 = stablehlo.broadcast_in_dim %24, dims = [0, 1, 2] : (tensor<1x1x16xf32>) -> tensor<2x6x16xf32>
    %26 = stablehlo.multiply %20, %25 : tensor<2x6x16xf32>
    %27 = stablehlo.broadcast_in_dim %arg7, dims = [2] : (tensor<16xf32>) -> tensor<1x1x16xf32>
    %28 = stablehlo.broadcast_in_dim %27, dims = [0, 1, 2] : (tensor<1x1x16xf32>) -> tensor<2x6x16xf32>
    %29 = stablehlo.add %26, %28 : tensor<2x6x16xf32>
    %30 = stablehlo.dot_general %29, %arg4, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x6x16xf32>, tensor<16x48xf32>) -> tensor<2x6x48xf32>
    %31 = stablehlo.reshape %30 : (tensor<2x6x48xf32>) -> tensor<2x6x3x2x8xf32>
    %32 = stablehlo.slice %31 [0:2, 0:6, 0:1, 0:2, 0:8] : (tensor<2x6x3x2x8xf32>) -> tensor<2x6x1x2x8xf32>
    %33 = stablehlo.reshape %32 : (tensor<2x6x1x2x8xf32>) -> tensor<2x6x2x8xf32>
    %34 = stablehlo.slice %31 [0:2, 0:6, 1:2, 0:2, 0:8] : (tensor<2x6x3x2x8xf32>) -> tensor<2x6x1x2x8xf32>
    %35 = stablehlo.reshape %34 : (tensor<2x6x1x2x8xf32>) -> tensor<2x6x2x8xf32>
    %36 = stablehlo.slice %31 [0:2, 0:6, 2:3, 0:2, 0:8] : (tensor<2x6x3x2x8xf32>) -> tensor<2x6x1x2x8xf32>
    %37 = stablehlo.reshape %36 : (tensor<2x6x1x2x8xf32>) -> tensor<2x6x2x8xf32>
    %38 = stablehlo.dot_general %33, %35, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x6x2x8xf32>, tensor<2x6x2x8xf32>) -> tensor<2x2x6x6xf32>
    %cst_6 = stablehlo.constant dense<2.82842708> : tensor<f32>
    %39 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<2x2x6x6xf32>
    %40 = stablehlo.divide %38, %39 : tensor<2x2x6x6xf32>
    %cst_7 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %41 = stablehlo.reduce(%40 init: %cst_7) applies stablehlo.maximum across dimensions = [3] : (tensor<2x2x6x6xf32>, tensor<f32>) -> tensor<2x2x6xf32>
    %cst_8 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %42 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<2x2x6xf32>
    %43 = stablehlo.maximum %42, %41 : tensor<2x2x6xf32>
    %44 = stablehlo.broadcast_in_dim %43, dims = [0, 1, 2] : (tensor<2x2x6xf32>) -> tensor<2x2x6x1xf32>
    %45 = stablehlo.broadcast_in_dim %44, dims = [0, 1, 2, 3] : (tensor<2x2x6x1xf32>) -> tensor<2x2x6x6xf32>
    %46 = stablehlo.subtract %40, %45 : tensor<2x2x6x6xf32>
    %47 = stablehlo.exponential %46 : tensor<2x2x6x6xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %48 = stablehlo.reduce(%47 init: %cst_9) applies stablehlo.add across dimensions = [3] : (tensor<2x2x6x6xf32>, tensor<f32>) -> tensor<2x2x6xf32>
    %49 = stablehlo.broadcast_in_dim %48, dims = [0, 1, 2] : (tensor<2x2x6xf32>) -> tensor<2x2x6x1xf32>
    %50 = stablehlo.broadcast_in_dim %49, dims = [0, 1, 2, 3] : (tensor<2x2x6x1xf32>) -> tensor<2x2x6x6xf32>
    %51 = stablehlo.divide %47, %50 : tensor<2x2x6x6xf32>
    %52 = stablehlo.multiply %49, %49 : tensor<2x2x6x1xf32>
    %cst_10 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %53 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<2x2x6x1xf32>
    %54 = stablehlo.divide %53, %52 : tensor<2x2x6x1xf32>
    %55 = stablehlo.dot_general %37, %51, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x6x2x8xf32>, tensor<2x2x6x6xf32>) -> tensor<2x2x8x6xf32>
    %56 = stablehlo.transpose %55, dims = [0, 3, 1, 2] : (tensor<2x2x8x6xf32>) -> tensor<2x6x2x8xf32>
    %57 = stablehlo.reshape %56 : (tensor<2x6x2x8xf32>) -> tensor<2x6x16xf32>
    %58 = stablehlo.dot_general %57, %arg2, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x6x16xf32>, tensor<16x2x8xf32>) -> tensor<2x6x2x8xf32>
    %59 = stablehlo.broadcast_in_dim %arg3, dims = [2, 3] : (tensor<2x8xf32>) -> tensor<1x1x2x8xf32>
    %60 = stablehlo.broadcast_in_dim %59, dims = [0, 1, 2, 3] : (tensor<1x1x2x8xf32>) -> tensor<2x6x2x8xf32>
    %61 = stablehlo.add %58, %60 : tensor<2x6x2x8xf32>
    %62 = stablehlo.reshape %61 : (tensor<2x6x2x8xf32>) -> tensor<2x6x16xf32>
    %63 = stablehlo.add %6, %62 : tensor<2x6x16xf32>
    %64 = stablehlo.multiply %63, %63 : tensor<2x6x16xf32>
    %cst_11 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %65 = stablehlo.reduce(%64 init: %cst_11) applies stablehlo.add across dimensions = [2] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
    %66 = stablehlo.broadcast_in_dim %65, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %cst_12 = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %67 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %68 = stablehlo.divide %66, %67 : tensor<2x6x1xf32>
    %cst_13 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %69 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %70 = stablehlo.add %68, %69 : tensor<2x6x1xf32>
    %71 = stablehlo.rsqrt %70 : tensor<2x6x1xf32>
    %72 = stablehlo.divide %71, %70 : tensor<2x6x1xf32>
    %cst_14 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %73 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %74 = stablehlo.multiply %73, %72 : tensor<2x6x1xf32>
    %75 = stablehlo.broadcast_in_dim %71, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x16xf32>
    %76 = stablehlo.multiply %63, %75 : tensor<2x6x16xf32>
    %77 = stablehlo.broadcast_in_dim %arg5, dims = [2] : (tensor<16xf32>) -> tensor<1x1x16xf32>
    %78 = stablehlo.broadcast_in_dim %77, dims = [0, 1, 2] : (tensor<1x1x16xf32>) -> tensor<2x6x16xf32>
    %79 = stablehlo.multiply %76, %78 : tensor<2x6x16xf32>
    %80 = stablehlo.dot_general %79, %arg1, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x6x16xf32>, tensor<16x11xf32>) -> tensor<2x6x11xf32>
    %81:2 = call @log_softmax(%80) : (tensor<2x6x11xf32>) -> (tensor<2x6x11xf32>, tensor<2x6x1xf32>)
    %82 = stablehlo.broadcast_in_dim %arg9, dims = [0, 1] : (tensor<2x6xi32>) -> tensor<2x6x1xi32>
    %83 = call @take_along_axis(%82) : (tensor<2x6x1xi32>) -> tensor<2x6x1x1xi32>
    %cst_15 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %84 = stablehlo.negate %cst_15 : tensor<f32>
    %cst_16 = stablehlo.constant dense<1.200000e+01> : tensor<f32>
    %85 = stablehlo.divide %84, %cst_16 : tensor<f32>
    %86 = stablehlo.broadcast_in_dim %85, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %87 = call @take_along_axis_0(%83, %86) : (tensor<2x6x1x1xi32>, tensor<2x6x1xf32>) -> tensor<2x6x11xf32>
    %88 = call @log_softmax_1(%81#0, %81#1, %87) : (tensor<2x6x11xf32>, tensor<2x6x1xf32>, tensor<2x6x11xf32>) -> tensor<2x6x11xf32>
    %89 = stablehlo.dot_general %88, %79, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<2x6x11xf32>, tensor<2x6x16xf32>) -> tensor<11x16xf32>
    %90 = stablehlo.transpose %89, dims = [1, 0] : (tensor<11x16xf32>) -> tensor<16x11xf32>
    %91 = stablehlo.dot_general %88, %arg1, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x6x11xf32>, tensor<16x11xf32>) -> tensor<2x6x16xf32>
    %92 = stablehlo.multiply %76, %91 : tensor<2x6x16xf32>
    %cst_17 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %93 = stablehlo.reduce(%92 init: %cst_17) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<16xf32>
    %94 = stablehlo.reshape %93 : (tensor<16xf32>) -> tensor<1x1x16xf32>
    %95 = stablehlo.broadcast_in_dim %77, dims = [0, 1, 2] : (tensor<1x1x16xf32>) -> tensor<2x6x16xf32>
    %96 = stablehlo.multiply %91, %95 : tensor<2x6x16xf32>
    %cst_18 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %97 = stablehlo.reduce(%94 init: %cst_18) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x16xf32>, tensor<f32>) -> tensor<16xf32>
    %98 = stablehlo.multiply %63, %96 : tensor<2x6x16xf32>
    %cst_19 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %99 = stablehlo.reduce(%98 init: %cst_19) applies stablehlo.add across dimensions = [2] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
    %100 = stablehlo.reshape %99 : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %101 = stablehlo.broadcast_in_dim %71, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x16xf32>
    %102 = stablehlo.multiply %96, %101 : tensor<2x6x16xf32>
    %103 = stablehlo.multiply %100, %74 : tensor<2x6x1xf32>
    %cst_20 = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %104 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %105 = stablehlo.divide %103, %104 : tensor<2x6x1xf32>
    %cst_21 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %106 = stablehlo.reduce(%105 init: %cst_21) applies stablehlo.add across dimensions = [2] : (tensor<2x6x1xf32>, tensor<f32>) -> tensor<2x6xf32>
    %107 = stablehlo.broadcast_in_dim %106, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x16xf32>
    %108 = stablehlo.multiply %63, %107 : tensor<2x6x16xf32>
    %109 = stablehlo.add %102, %108 : tensor<2x6x16xf32>
    %110 = stablehlo.multiply %107, %63 : tensor<2x6x16xf32>
    %111 = stablehlo.add %109, %110 : tensor<2x6x16xf32>
    %112 = stablehlo.reshape %111 : (tensor<2x6x16xf32>) -> tensor<2x6x2x8xf32>
    %cst_22 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %113 = stablehlo.reduce(%112 init: %cst_22) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x6x2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %114 = stablehlo.reshape %113 : (tensor<2x8xf32>) -> tensor<1x1x2x8xf32>
    %cst_23 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %115 = stablehlo.reduce(%114 init: %cst_23) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %116 = stablehlo.dot_general %112, %57, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<2x6x2x8xf32>, tensor<2x6x16xf32>) -> tensor<2x8x16xf32>
    %117 = stablehlo.transpose %116, dims = [2, 0, 1] : (tensor<2x8x16xf32>) -> tensor<16x2x8xf32>
    %118 = stablehlo.dot_general %112, %arg2, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<2x6x2x8xf32>, tensor<16x2x8xf32>) -> tensor<2x6x16xf32>
    %119 = stablehlo.reshape %118 : (tensor<2x6x16xf32>) -> tensor<2x6x2x8xf32>
    %120 = stablehlo.transpose %119, dims = [0, 2, 3, 1] : (tensor<2x6x2x8xf32>) -> tensor<2x2x8x6xf32>
    %121 = stablehlo.dot_general %120, %37, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x2x8x6xf32>, tensor<2x6x2x8xf32>) -> tensor<2x2x6x6xf32>
    %122 = stablehlo.dot_general %120, %51, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x2x8x6xf32>, tensor<2x2x6x6xf32>) -> tensor<2x2x8x6xf32>
    %123 = stablehlo.transpose %122, dims = [0, 3, 1, 2] : (tensor<2x2x8x6xf32>) -> tensor<2x6x2x8xf32>
    %124 = stablehlo.broadcast_in_dim %54, dims = [0, 1, 2, 3] : (tensor<2x2x6x1xf32>) -> tensor<2x2x6x6xf32>
    %125 = stablehlo.multiply %121, %124 : tensor<2x2x6x6xf32>
    %126 = stablehlo.multiply %125, %47 : tensor<2x2x6x6xf32>
    %cst_24 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %127 = stablehlo.reduce(%126 init: %cst_24) applies stablehlo.add across dimensions = [3] : (tensor<2x2x6x6xf32>, tensor<f32>) -> tensor<2x2x6xf32>
    %128 = stablehlo.reshape %127 : (tensor<2x2x6xf32>) -> tensor<2x2x6x1xf32>
    %129 = stablehlo.negate %128 : tensor<2x2x6x1xf32>
    %130 = stablehlo.broadcast_in_dim %49, dims = [0, 1, 2, 3] : (tensor<2x2x6x1xf32>) -> tensor<2x2x6x6xf32>
    %131 = stablehlo.divide %121, %130 : tensor<2x2x6x6xf32>
    %cst_25 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %132 = stablehlo.reduce(%129 init: %cst_25) applies stablehlo.add across dimensions = [3] : (tensor<2x2x6x1xf32>, tensor<f32>) -> tensor<2x2x6xf32>
    %133 = stablehlo.broadcast_in_dim %132, dims = [0, 1, 2] : (tensor<2x2x6xf32>) -> tensor<2x2x6x6xf32>
    %134 = stablehlo.add %131, %133 : tensor<2x2x6x6xf32>
    %135 = stablehlo.multiply %134, %47 : tensor<2x2x6x6xf32>
    %cst_26 = stablehlo.constant dense<2.82842708> : tensor<f32>
    %136 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<f32>) -> tensor<2x2x6x6xf32>
    %137 = stablehlo.divide %135, %136 : tensor<2x2x6x6xf32>
    %138 = stablehlo.dot_general %137, %33, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x2x6x6xf32>, tensor<2x6x2x8xf32>) -> tensor<2x2x6x8xf32>
    %139 = stablehlo.transpose %138, dims = [0, 2, 1, 3] : (tensor<2x2x6x8xf32>) -> tensor<2x6x2x8xf32>
    %140 = stablehlo.dot_general %137, %35, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x2x6x6xf32>, tensor<2x6x2x8xf32>) -> tensor<2x2x6x8xf32>
    %141 = stablehlo.transpose %140, dims = [0, 2, 1, 3] : (tensor<2x2x6x8xf32>) -> tensor<2x6x2x8xf32>
    %142 = stablehlo.broadcast_in_dim %123, dims = [0, 1, 3, 4] : (tensor<2x6x2x8xf32>) -> tensor<2x6x1x2x8xf32>
    %cst_27 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %143 = stablehlo.pad %142, %cst_27, low = [0, 0, 2, 0, 0], high = [0, 0, 0, 0, 0], interior = [0, 0, 0, 0, 0] : (tensor<2x6x1x2x8xf32>, tensor<f32>) -> tensor<2x6x3x2x8xf32>
    %144 = stablehlo.broadcast_in_dim %139, dims = [0, 1, 3, 4] : (tensor<2x6x2x8xf32>) -> tensor<2x6x1x2x8xf32>
    %cst_28 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %145 = stablehlo.pad %144, %cst_28, low = [0, 0, 1, 0, 0], high = [0, 0, 1, 0, 0], interior = [0, 0, 0, 0, 0] : (tensor<2x6x1x2x8xf32>, tensor<f32>) -> tensor<2x6x3x2x8xf32>
    %146 = stablehlo.add %143, %145 : tensor<2x6x3x2x8xf32>
    %147 = stablehlo.broadcast_in_dim %141, dims = [0, 1, 3, 4] : (tensor<2x6x2x8xf32>) -> tensor<2x6x1x2x8xf32>
    %cst_29 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %148 = stablehlo.pad %147, %cst_29, low = [0, 0, 0, 0, 0], high = [0, 0, 2, 0, 0], interior = [0, 0, 0, 0, 0] : (tensor<2x6x1x2x8xf32>, tensor<f32>) -> tensor<2x6x3x2x8xf32>
    %149 = stablehlo.add %146, %148 : tensor<2x6x3x2x8xf32>
    %150 = stablehlo.reshape %149 : (tensor<2x6x3x2x8xf32>) -> tensor<2x6x48xf32>
    %151 = stablehlo.dot_general %150, %29, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<2x6x48xf32>, tensor<2x6x16xf32>) -> tensor<48x16xf32>
    %152 = stablehlo.transpose %151, dims = [1, 0] : (tensor<48x16xf32>) -> tensor<16x48xf32>
    %153 = stablehlo.dot_general %150, %arg4, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x6x48xf32>, tensor<16x48xf32>) -> tensor<2x6x16xf32>
    %cst_30 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %154 = stablehlo.reduce(%153 init: %cst_30) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<16xf32>
    %155 = stablehlo.reshape %154 : (tensor<16xf32>) -> tensor<1x1x16xf32>
    %cst_31 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %156 = stablehlo.reduce(%155 init: %cst_31) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x16xf32>, tensor<f32>) -> tensor<16xf32>
    %157 = stablehlo.multiply %20, %153 : tensor<2x6x16xf32>
    %cst_32 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %158 = stablehlo.reduce(%157 init: %cst_32) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<16xf32>
    %159 = stablehlo.reshape %158 : (tensor<16xf32>) -> tensor<1x1x16xf32>
    %160 = stablehlo.broadcast_in_dim %24, dims = [0, 1, 2] : (tensor<1x1x16xf32>) -> tensor<2x6x16xf32>
    %161 = stablehlo.multiply %153, %160 : tensor<2x6x16xf32>
    %cst_33 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %162 = stablehlo.reduce(%159 init: %cst_33) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x16xf32>, tensor<f32>) -> tensor<16xf32>
    %163 = stablehlo.broadcast_in_dim %23, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x16xf32>
    %164 = stablehlo.multiply %161, %163 : tensor<2x6x16xf32>
    %165 = stablehlo.multiply %164, %12 : tensor<2x6x16xf32>
    %cst_34 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %166 = stablehlo.reduce(%165 init: %cst_34) applies stablehlo.add across dimensions = [2] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
    %167 = stablehlo.reshape %166 : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %168 = stablehlo.negate %167 : tensor<2x6x1xf32>
    %169 = stablehlo.broadcast_in_dim %16, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x16xf32>
    %170 = stablehlo.divide %161, %169 : tensor<2x6x16xf32>
    %171 = stablehlo.multiply %168, %18 : tensor<2x6x1xf32>
    %172 = call @_var_2(%13#1, %13#2, %13#3, %171) : (tensor<2x6x16xf32>, tensor<f32>, tensor<i1>, tensor<2x6x1xf32>) -> tensor<2x6x16xf32>
    %173 = stablehlo.add %111, %172 : tensor<2x6x16xf32>
    %174 = stablehlo.negate %170 : tensor<2x6x16xf32>
    %cst_35 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %175 = stablehlo.reduce(%174 init: %cst_35) applies stablehlo.add across dimensions = [2] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
    %176 = stablehlo.reshape %175 : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %177 = stablehlo.add %173, %170 : tensor<2x6x16xf32>
    %cst_36 = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %178 = stablehlo.broadcast_in_dim %cst_36, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %179 = stablehlo.divide %176, %178 : tensor<2x6x1xf32>
    %cst_37 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %180 = stablehlo.reduce(%179 init: %cst_37) applies stablehlo.add across dimensions = [2] : (tensor<2x6x1xf32>, tensor<f32>) -> tensor<2x6xf32>
    %181 = stablehlo.broadcast_in_dim %180, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x16xf32>
    %182 = stablehlo.add %177, %181 : tensor<2x6x16xf32>
    %cst_38 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %183 = stablehlo.broadcast_in_dim %cst_38, dims = [] : (tensor<f32>) -> tensor<11x16xf32>
    %184 = "stablehlo.scatter"(%183, %5, %182) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>, unique_indices = false}> ({
    ^bb0(%arg10: tensor<f32>, %arg11: tensor<f32>):
      %209 = stablehlo.add %arg10, %arg11 : tensor<f32>
      stablehlo.return %209 : tensor<f32>
    }) : (tensor<11x16xf32>, tensor<2x6x1xi32>, tensor<2x6x16xf32>) -> tensor<11x16xf32>
    %cst_39 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %185 = stablehlo.broadcast_in_dim %cst_39, dims = [] : (tensor<f32>) -> tensor<11x16xf32>
    %186 = stablehlo.multiply %185, %184 : tensor<11x16xf32>
    %187 = stablehlo.subtract %arg0, %186 : tensor<11x16xf32>
    %cst_40 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %188 = stablehlo.broadcast_in_dim %cst_40, dims = [] : (tensor<f32>) -> tensor<16x11xf32>
    %189 = stablehlo.multiply %188, %90 : tensor<16x11xf32>
    %190 = stablehlo.subtract %arg1, %189 : tensor<16x11xf32>
    %cst_41 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %191 = stablehlo.broadcast_in_dim %cst_41, dims = [] : (tensor<f32>) -> tensor<16x2x8xf32>
    %192 = stablehlo.multiply %191, %117 : tensor<16x2x8xf32>
    %193 = stablehlo.subtract %arg2, %192 : tensor<16x2x8xf32>
    %cst_42 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %194 = stablehlo.broadcast_in_dim %cst_42, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
    %195 = stablehlo.multiply %194, %115 : tensor<2x8xf32>
    %196 = stablehlo.subtract %arg3, %195 : tensor<2x8xf32>
    %cst_43 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %197 = stablehlo.broadcast_in_dim %cst_43, dims = [] : (tensor<f32>) -> tensor<16x48xf32>
    %198 = stablehlo.multiply %197, %152 : tensor<16x48xf32>
    %199 = stablehlo.subtract %arg4, %198 : tensor<16x48xf32>
    %cst_44 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %200 = stablehlo.broadcast_in_dim %cst_44, dims = [] : (tensor<f32>) -> tensor<16xf32>
    %201 = stablehlo.multiply %200, %97 : tensor<16xf32>
    %202 = stablehlo.subtract %arg5, %201 : tensor<16xf32>
    %cst_45 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %203 = stablehlo.broadcast_in_dim %cst_45, dims = [] : (tensor<f32>) -> tensor<16xf32>
    %204 = stablehlo.multiply %203, %162 : tensor<16xf32>
    %205 = stablehlo.subtract %arg6, %204 : tensor<16xf32>
    %cst_46 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %206 = stablehlo.broadcast_in_dim %cst_46, dims = [] : (tensor<f32>) -> tensor<16xf32>
    %207 = stablehlo.multiply %206, %156 : tensor<16xf32>
    %208 = stablehlo.subtract %arg7, %207 : tensor<16xf32>
    return %187, %190, %193, %196, %199, %202, %205, %208 : tensor<11x16xf32>, tensor<16x11xf32>, tensor<16x2x8xf32>, tensor<2x8xf32>, tensor<16x48xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
  }
  func.func private @_var(%arg0: tensor<2x6x16xf32>, %arg1: tensor<i32>) -> (tensor<2x6x1xf32>, tensor<2x6x16xf32>, tensor<f32>, tensor<i1>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %cst_0 = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<2x6x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x16xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x6x16xf32>
    %6 = chlo.square %5 : tensor<2x6x16xf32> -> tensor<2x6x16xf32>
    %cst_1 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x6x16xf32>
    %8 = stablehlo.multiply %7, %5 : tensor<2x6x16xf32>
    %9 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %cst_2 = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %10 = stablehlo.subtract %cst_2, %9 : tensor<f32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%6 init: %cst_3) applies stablehlo.add across dimensions = [2] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %13 = stablehlo.broadcast_in_dim %10, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %14 = stablehlo.divide %12, %13 : tensor<2x6x1xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %15 = stablehlo.compare GT, %10, %cst_4, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %cst_5 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %16 = call @_where(%15, %14, %cst_5) : (tensor<i1>, tensor<2x6x1xf32>, tensor<f32>) -> tensor<2x6x1xf32>
    return %16, %8, %10, %15 : tensor<2x6x1xf32>, tensor<2x6x16xf32>, tensor<f32>, tensor<i1>
  }
  func.func private @_where(%arg0: tensor<i1>, %arg1: tensor<2x6x1xf32>, %arg2: tensor<f32>) -> tensor<2x6x1xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %2 = stablehlo.select %arg0, %arg1, %1 : tensor<i1>, tensor<2x6x1xf32>
    return %2 : tensor<2x6x1xf32>
  }
  func.func private @log_softmax(%arg0: tensor<2x6x11xf32>) -> (tensor<2x6x11xf32>, tensor<2x6x1xf32>) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [2] : (tensor<2x6x11xf32>, tensor<f32>) -> tensor<2x6xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x6xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<2x6xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x11xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x6x11xf32>
    %6 = stablehlo.exponential %5 : tensor<2x6x11xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<2x6x11xf32>, tensor<f32>) -> tensor<2x6xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    return %6, %8 : tensor<2x6x11xf32>, tensor<2x6x1xf32>
  }
  func.func private @take_along_axis(%arg0: tensor<2x6x1xi32>) -> tensor<2x6x1x1xi32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2x6x1xi32>
    %1 = stablehlo.compare LT, %arg0, %0, SIGNED : (tensor<2x6x1xi32>, tensor<2x6x1xi32>) -> tensor<2x6x1xi1>
    %c_0 = stablehlo.constant dense<11> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x6x1xi32>
    %3 = stablehlo.add %arg0, %2 : tensor<2x6x1xi32>
    %4 = stablehlo.select %1, %3, %arg0 : tensor<2x6x1xi1>, tensor<2x6x1xi32>
    %5 = stablehlo.reshape %4 : (tensor<2x6x1xi32>) -> tensor<2x6x1x1xi32>
    return %5 : tensor<2x6x1x1xi32>
  }
  func.func private @take_along_axis_0(%arg0: tensor<2x6x1x1xi32>, %arg1: tensor<2x6x1xf32>) -> tensor<2x6x11xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x6x11xf32>
    %1 = "stablehlo.scatter"(%0, %arg0, %arg1) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [2], input_batching_dims = [0, 1], scatter_indices_batching_dims = [0, 1], scatter_dims_to_operand_dims = [2], index_vector_dim = 3>, unique_indices = false}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %2 = stablehlo.add %arg2, %arg3 : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<2x6x11xf32>, tensor<2x6x1x1xi32>, tensor<2x6x1xf32>) -> tensor<2x6x11xf32>
    return %1 : tensor<2x6x11xf32>
  }
  func.func private @log_softmax_1(%arg0: tensor<2x6x11xf32>, %arg1: tensor<2x6x1xf32>, %arg2: tensor<2x6x11xf32>) -> tensor<2x6x11xf32> {
    %0 = stablehlo.negate %arg2 : tensor<2x6x11xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x6x11xf32>, tensor<f32>) -> tensor<2x6xf32>
    %2 = stablehlo.reshape %1 : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %3 = stablehlo.divide %2, %arg1 : tensor<2x6x1xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [2] : (tensor<2x6x1xf32>, tensor<f32>) -> tensor<2x6xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x11xf32>
    %6 = stablehlo.multiply %5, %arg0 : tensor<2x6x11xf32>
    %7 = stablehlo.add %arg2, %6 : tensor<2x6x11xf32>
    return %7 : tensor<2x6x11xf32>
  }
  func.func private @_var_2(%arg0: tensor<2x6x16xf32>, %arg1: tensor<f32>, %arg2: tensor<i1>, %arg3: tensor<2x6x1xf32>) -> tensor<2x6x16xf32> {
    %0 = call @_where_3(%arg2, %arg3) : (tensor<i1>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %1 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %2 = stablehlo.divide %0, %1 : tensor<2x6x1xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %3 = stablehlo.reduce(%2 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x6x1xf32>, tensor<f32>) -> tensor<2x6xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x16xf32>
    %5 = stablehlo.multiply %4, %arg0 : tensor<2x6x16xf32>
    %6 = stablehlo.negate %5 : tensor<2x6x16xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_0) applies stablehlo.add across dimensions = [2] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
    %8 = stablehlo.reshape %7 : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %cst_1 = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %10 = stablehlo.divide %8, %9 : tensor<2x6x1xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%10 init: %cst_2) applies stablehlo.add across dimensions = [2] : (tensor<2x6x1xf32>, tensor<f32>) -> tensor<2x6xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x16xf32>
    %13 = stablehlo.add %5, %12 : tensor<2x6x16xf32>
    return %13 : tensor<2x6x16xf32>
  }
  func.func private @_where_3(%arg0: tensor<i1>, %arg1: tensor<2x6x1xf32>) -> tensor<2x6x1xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %1 = stablehlo.select %arg0, %arg1, %0 : tensor<i1>, tensor<2x6x1xf32>
    return %1 : tensor<2x6x1xf32>
  }
}
